# Makes the Debian packages of BUILD_DIR, checks their fields and files, and unpacks both in ROOT.
set(folder "${ROOT}_packages")
file(REMOVE_RECURSE "${ROOT}" "${folder}")
execute_process(
  COMMAND "${CPACK}" -G DEB -B "${folder}"
  WORKING_DIRECTORY "${BUILD_DIR}"
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB packages "${folder}/*.deb")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" so_version "${VERSION}")

# unpack(<package> <file that it has to hold> <field> <regular expression of its value>...)
function(unpack package file)
  set(found ${packages})
  string(REPLACE "." "\\." name "${package}")
  list(FILTER found INCLUDE REGEX "/${name}_${VERSION}_[a-z0-9]+\\.deb$")
  list(LENGTH found count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "there is no one ${package} among ${packages}")
  endif()
  while(ARGN)
    list(POP_FRONT ARGN field wanted)
    execute_process(COMMAND "${DPKG_DEB}" -f "${found}" "${field}" OUTPUT_VARIABLE value
                    COMMAND_ERROR_IS_FATAL ANY)
    if(NOT value MATCHES "${wanted}")
      message(FATAL_ERROR "${package} has ${field}: ${value}, which does not match ${wanted}")
    endif()
  endwhile()
  execute_process(COMMAND "${DPKG_DEB}" -x "${found}" "${ROOT}" COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB there "${ROOT}/usr/${file}")
  if(NOT there)
    message(FATAL_ERROR "${package} has no usr/${file}")
  endif()
endfunction()

unpack("libshmap${so_version}" "lib*/libshmap.so.${so_version}" Depends "libc6 .*libstdc\\+\\+6 " Section
       "^libs")
unpack(libshmap-dev "include/shmap/shmap.h" Depends "^libshmap${so_version} \\(= ${VERSION}\\)" Section
       "^libdevel")
file(GLOB_RECURSE printers "${ROOT}/usr/share/gdb/auto-load/usr/lib/*libshmap.so.${VERSION}-gdb.py")
if(NOT printers)
  message(FATAL_ERROR "libshmap-dev has no printer for gdb")
endif()
