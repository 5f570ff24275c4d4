# cpack -G DEB: libshmap0.1, which programs need to run, and libshmap-dev, with the headers, the files for
# CMake and pkg-config, and gdb's printers. Configured with -DCMAKE_INSTALL_PREFIX=/usr the library lies where
# Debian's own do (lib/x86_64-linux-gnu); else in /usr/lib.
if(NOT PROJECT_IS_TOP_LEVEL OR NOT BUILD_SHARED_LIBS)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "the authors of shmap")
set(CPACK_PACKAGE_CONTACT "the authors of shmap <shmap@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed arrays: shard_map, collectives and jit in C++20")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(so_version "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")

set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The shared library, which programs need to run.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "libshmap${so_version}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
# Libraries that the library opens when they are first used, and does without if they are missing.
# It needs the major version of oneDNN that it was built with, which Debian's package has in its
# name.
set(recommends "")
if(ONEDNN_FOUND AND NOT SHMAP_WITH_ONEDNN STREQUAL "OFF")
  string(REGEX REPLACE "[.].*" "" major "${ONEDNN_VERSION_FOUND}")
  list(APPEND recommends "libdnnl${major}")
endif()
if(OPENBLAS_FOUND AND NOT SHMAP_WITH_OPENBLAS STREQUAL "OFF")
  list(APPEND recommends libopenblas0)
endif()
list(JOIN recommends ", " CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS)
if(MPI_FOUND)
  # The names of Debian 12, Debian 13 and Ubuntu 24.04.
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "openmpi-bin, libopenmpi3 | libopenmpi40 | libopenmpi3t64")
endif()

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "The headers, the files by which CMake and pkg-config find the library, and gdb's printer of arrays.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libshmap-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "cmake, pkgconf, gdb")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS runtime)

include(CPack)
