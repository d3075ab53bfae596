find_package(absl REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)

# The OpenMP build of OpenBLAS: one thread runtime for everything.
find_path(TALLY_CBLAS_INCLUDE cblas.h PATH_SUFFIXES x86_64-linux-gnu/openblas-openmp openblas-openmp openblas REQUIRED)
find_library(TALLY_OPENBLAS_LIBRARY openblas PATH_SUFFIXES x86_64-linux-gnu/openblas-openmp openblas-openmp REQUIRED)
# Found directly: Debian's CMake package of oneDNN asks for OpenCL.
find_path(TALLY_ONEDNN_INCLUDE dnnl.h)
find_library(TALLY_ONEDNN_LIBRARY dnnl)
find_path(TALLY_HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(TALLY_HWY_LIBRARY hwy REQUIRED)
