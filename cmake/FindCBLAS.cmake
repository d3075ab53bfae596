# CBLAS::CBLAS: the OpenMP build of OpenBLAS, so that one thread runtime serves everything.
# Debian keeps the flavours of OpenBLAS side by side, hence the suffixes.
find_path(CBLAS_INCLUDE_DIR cblas.h
  PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp openblas-openmp openblas)
find_library(CBLAS_LIBRARY openblas
  PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp openblas-openmp)
mark_as_advanced(CBLAS_INCLUDE_DIR CBLAS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CBLAS REQUIRED_VARS CBLAS_LIBRARY CBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "on Debian and Ubuntu: apt-get install libopenblas-openmp-dev")

if(CBLAS_FOUND AND NOT TARGET CBLAS::CBLAS)
  add_library(CBLAS::CBLAS UNKNOWN IMPORTED)
  set_target_properties(CBLAS::CBLAS PROPERTIES
    IMPORTED_LOCATION ${CBLAS_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${CBLAS_INCLUDE_DIR})
endif()
