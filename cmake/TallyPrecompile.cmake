# tally_precompile(TARGET OWNER HEADER): parses HEADER once for TARGET and every other target of the
# same OWNER, a name of the caller's: targets of one owner are compiled with the same options. What
# is precompiled is a convenience: sources still include what they use, and all compiles without.
function(tally_precompile target owner header)
  if(NOT TALLY_PRECOMPILE)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # else ccache passes the file by
  endif()
  set(first precompiled_${owner})
  if(NOT TARGET ${first})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${first}.cc CONTENT "")
    add_library(${first} OBJECT ${PROJECT_BINARY_DIR}/${first}.cc)
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES LINK_LIBRARIES
            POSITION_INDEPENDENT_CODE)
      get_target_property(value ${target} ${property})
      if(value)
        set_target_properties(${first} PROPERTIES ${property} "${value}")
      endif()
    endforeach()
    target_compile_features(${first} PRIVATE cxx_std_20)
    target_precompile_headers(${first} PRIVATE ${header})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${first})
endfunction()
