include(CMakePackageConfigHelpers)
set(layers tensor ops autograd optim nn analysis io)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tally)

list(TRANSFORM layers PREPEND tally_ OUTPUT_VARIABLE layer_targets)
if(TALLY_HAS_CUDA)
  list(APPEND layer_targets tally_cuda)
endif()
install(TARGETS ${layer_targets} tally_tally EXPORT tally-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
    NAMELINK_COMPONENT development)
foreach(layer ${layers})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tally
    COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.inc")
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/tally.h ${PROJECT_SOURCE_DIR}/testing.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tally COMPONENT development)

install(EXPORT tally-targets NAMESPACE tally:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tally-config.cmake.in
  ${PROJECT_BINARY_DIR}/tally-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tally-config-version.cmake
  COMPATIBILITY SameMinorVersion)
# The find modules travel with the package: a static tally needs these libraries when it is linked.
install(FILES ${PROJECT_BINARY_DIR}/tally-config.cmake
  ${PROJECT_BINARY_DIR}/tally-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindCBLAS.cmake ${PROJECT_SOURCE_DIR}/cmake/FindoneDNN.cmake
  DESTINATION ${package_dir} COMPONENT development)
