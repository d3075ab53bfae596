# tally_layer(NAME [USES layer...] [PUBLIC lib...] [PRIVATE lib...])
# The library of folder NAME: target tally_NAME, also known as tally::NAME. A folder of headers alone
# becomes an interface library.
function(tally_layer name)
  cmake_parse_arguments(ARG "" "" "USES;PUBLIC;PRIVATE" ${ARGN})
  set(target tally_${name})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cc
       ${PROJECT_SOURCE_DIR}/${name}/*/*.cc)
  list(FILTER sources EXCLUDE REGEX ${TALLY_CUDA_HOST_PATTERN})
  if(sources)
    add_library(${target} ${sources})
    set(scope PUBLIC)
    target_compile_options(${target} PRIVATE ${TALLY_COMPILE_OPTIONS})
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE})
    if(name STREQUAL "ops")
      # Its loops take roots: where sqrt may set errno they are not vectorised.
      set_source_files_properties(ops/adam_step.cc ops/rmsprop_step.cc PROPERTIES
        COMPILE_OPTIONS -fno-math-errno SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if("hwy::hwy" IN_LIST ARG_PRIVATE)
      # AVX-512, AVX2 and, for what is older, scalar code: vectors without FMA are not worth a kernel.
      target_compile_definitions(${target} PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3 | HWY_SSE4)")
      if(TALLY_SANITIZE MATCHES "undefined")
        # AddressSanitizer sees every access of a kernel already; checking the pointers of each
        # register operation as well takes minutes of compile time a file.
        set(kernels)
        foreach(source ${sources})
          file(STRINGS ${source} targets REGEX "hwy/foreach_target\\.h" LIMIT_COUNT 1)
          if(targets)
            list(APPEND kernels ${source})
          endif()
        endforeach()
        set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS
          -fno-sanitize=null,alignment,object-size,pointer-overflow)
      endif()
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(tally::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name} VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  list(TRANSFORM ARG_USES PREPEND tally_)
  target_link_libraries(${target} ${scope} ${ARG_USES} ${ARG_PUBLIC})
  if(sources AND "oneDNN::oneDNN" IN_LIST ARG_PRIVATE)
    target_compile_definitions(${target} PRIVATE TALLY_HAS_ONEDNN=1)
  endif()
  if(name STREQUAL "ops" OR name STREQUAL "optim")
    tally_precompile(${target} ops ${PROJECT_SOURCE_DIR}/cmake/precompiled/ops.h)
  elseif(sources AND NOT name STREQUAL "tensor")
    tally_precompile(${target} graph ${PROJECT_SOURCE_DIR}/cmake/precompiled/graph.h)
  endif()
endfunction()
