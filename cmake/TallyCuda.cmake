# The CUDA library: the backend of tensor/ and the kernels beside their ops, one library over both
# layers. The layers refer to it weakly and link without it.

# The sources by name: device code is *.cu; host code that calls CUDA has it in its file's name.
set(TALLY_CUDA_HOST_PATTERN "/(cuda_[a-z_]*|[a-z_]*_cuda|[a-z_]*_cublas)\\.cc$")
file(GLOB TALLY_CUDA_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tensor/*.cu
     ${PROJECT_SOURCE_DIR}/ops/*.cu)
file(GLOB TALLY_CUDA_HOST CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tensor/*.cc)
list(FILTER TALLY_CUDA_HOST INCLUDE REGEX ${TALLY_CUDA_HOST_PATTERN})

# Sets TALLY_HAS_CUDA. The toolkit must be 12.0 or newer: kernels are C++20.
set(TALLY_HAS_CUDA OFF)
set(reason "")
if(NOT TALLY_CUDA)
  set(reason "switched off")
elseif(TALLY_SANITIZE)
  set(reason "not under sanitizers")
else()
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(reason "no CUDA Toolkit found; CUDAToolkit_ROOT says where it is")
  elseif(CUDAToolkit_VERSION VERSION_LESS 12.0)
    set(reason "CUDA Toolkit ${CUDAToolkit_VERSION} is there; 12.0 or newer is needed")
  else()
    # By the environment: what is named to CMake itself is not tried out first.
    set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
    set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
    set(CMAKE_CUDA_ARCHITECTURES ${TALLY_CUDA_ARCHITECTURES})
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 has it
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
        set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      endif()
      set(TALLY_HAS_CUDA ON)
    else()
      set(reason "${CUDAToolkit_NVCC_EXECUTABLE} does not work with ${CMAKE_CXX_COMPILER}")
    endif()
  endif()
endif()
if(TALLY_HAS_CUDA)
  message(STATUS "tally: CUDA ${CUDAToolkit_VERSION}, for ${TALLY_CUDA_ARCHITECTURES}")
elseif(TALLY_CUDA AND NOT TALLY_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "TALLY_CUDA=${TALLY_CUDA}: ${reason}")
else()
  message(STATUS "tally: no CUDA: ${reason}; devices: cpu, meta")
endif()

if(TALLY_HAS_CUDA)
  add_library(tally_cuda ${TALLY_CUDA_HOST} ${TALLY_CUDA_KERNELS})
  add_library(tally::cuda ALIAS tally_cuda)
  set_target_properties(tally_cuda PROPERTIES EXPORT_NAME cuda CUDA_RUNTIME_LIBRARY Static POSITION_INDEPENDENT_CODE ON)
  target_compile_options(tally_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${TALLY_COMPILE_OPTIONS}>
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TALLY_WERROR}>>:--Werror=all-warnings>")
  # cuBLAS is loaded when the first product runs on a GPU: only its header is needed here, and where
  # to look when the system does not know the library.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tensor/gemm_cublas.cc PROPERTIES
    COMPILE_DEFINITIONS TALLY_CUDA_LIBRARY_DIR="${CUDAToolkit_LIBRARY_DIR}")
  target_include_directories(tally_cuda PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(tally_cuda PUBLIC tally_ops tally_tensor
    PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endif()
