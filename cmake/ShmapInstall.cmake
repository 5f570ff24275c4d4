# Installation: the library, the public headers, and the package that find_package(shmap) reads. Two
# components, which are two Debian packages (ShmapPackage): runtime, what a program needs to run, and
# development, what compiling one needs. Without --component all is installed.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

install(
  TARGETS shmap
  EXPORT shmapTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT runtime
          NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
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

# For programs built without CMake. Only the package above knows the dependencies of a static
# library. The folder is found from the file's own position, since `cmake --install --prefix` may
# choose it.
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH SHMAP_PREFIX_FROM_PC "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" SHMAP_PREFIX_FROM_PC "${SHMAP_PREFIX_FROM_PC}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/shmap.pc.in" "${PROJECT_BINARY_DIR}/shmap.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/shmap.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# gdb reads X-gdb.py when it loads X: beside the library, from folders that its user trusts
# (add-auto-load-safe-path), and of a library in /usr from a folder of its own.
if(BUILD_SHARED_LIBS)
  install(
    CODE "
    set(folder \"${CMAKE_INSTALL_LIBDIR}\")
    if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
      set(folder \"${CMAKE_INSTALL_DATADIR}/gdb/auto-load/usr/${CMAKE_INSTALL_LIBDIR}\")
    endif()
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${folder}\" TYPE FILE
         RENAME \"libshmap.so.${PROJECT_VERSION}-gdb.py\"
         FILES \"${PROJECT_SOURCE_DIR}/cmake/shmap-gdb.py\")")
endif()
