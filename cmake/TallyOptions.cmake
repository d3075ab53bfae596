option(TALLY_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TALLY_PRECOMPILE_TESTS "Precompile the headers that the tests share" ON)
option(TALLY_BUILD_TOOLS "Build graph-report and tally-train" ${PROJECT_IS_TOP_LEVEL})
option(TALLY_BUILD_BENCHMARKS "Build tally-bench" ${PROJECT_IS_TOP_LEVEL})
option(TALLY_BUILD_FUZZERS "Build the fuzz targets (needs Clang)" OFF)
option(TALLY_INSTALL "Make the install rules" ${PROJECT_IS_TOP_LEVEL})
option(TALLY_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
set(TALLY_SANITIZE "" CACHE STRING "Sanitizers of every target, as in address,undefined")
set(TALLY_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE TALLY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TALLY_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for; 90 is sm_90 and its PTX")

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  # Installed programs find the OpenMP build of OpenBLAS even where another flavour is the default.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
  endif()
endif()

# No fused multiply-adds behind our back: a vector loop and its scalar tail give the same bits.
set(TALLY_COMPILE_OPTIONS -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND TALLY_COMPILE_OPTIONS -Wno-restrict)  # g++ 12 is wrong about "x" + std::string
endif()
if(TALLY_WERROR)
  list(APPEND TALLY_COMPILE_OPTIONS -Werror)
endif()
if(TALLY_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With instrumentation g++ takes values for uninitialised that are not, in <regex> for one.
  list(APPEND TALLY_COMPILE_OPTIONS -Wno-maybe-uninitialized)
endif()
if(TALLY_SANITIZE)
  add_compile_options(-fsanitize=${TALLY_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TALLY_SANITIZE})
endif()

if(TALLY_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "TALLY_BUILD_FUZZERS: libFuzzer needs Clang; use CMAKE_CXX_COMPILER=clang++")
endif()
if(TALLY_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of the library guides the fuzzers
endif()
