# Installation: the library, the public headers, and the package that find_package(shmap) reads.
include(CMakePackageConfigHelpers)

install(
  TARGETS shmap
  EXPORT shmapTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/shmap"
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING
  PATTERN "*.h")
install(
  EXPORT shmapTargets
  NAMESPACE shmap::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shmap)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/shmapConfig.cmake.in" "${PROJECT_BINARY_DIR}/shmapConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shmap)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/shmapConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/shmapConfig.cmake"
              "${PROJECT_BINARY_DIR}/shmapConfigVersion.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shmap)

# For programs built without CMake. Of a static library only the package above knows what else it
# needs. The folder is found from where the file lies, since `cmake --install --prefix` may choose it.
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH SHMAP_PREFIX_FROM_PC "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" SHMAP_PREFIX_FROM_PC "${SHMAP_PREFIX_FROM_PC}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/shmap.pc.in" "${PROJECT_BINARY_DIR}/shmap.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/shmap.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
