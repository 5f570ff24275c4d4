# Builds main.cpp as somebody does who debugs a program of theirs, with debug information of the program
# alone, and holds what gdb prints of its arrays and mesh against the text below.
#   cmake -DGDB=... -DCOMPILER=... -DPREFIX=... -DFOLDER=... -P gdb_prints.cmake
get_filename_component(PREFIX "${PREFIX}" REALPATH)
file(MAKE_DIRECTORY "${FOLDER}")
execute_process(
  COMMAND
    "${COMPILER}" -std=c++20 -g -O0 "${CMAKE_CURRENT_LIST_DIR}/main.cpp" -o "${FOLDER}/program" -I
    "${PREFIX}/include" -L "${PREFIX}/${LIBDIR}" -lshmap "-Wl,-rpath,${PREFIX}/${LIBDIR}" COMMAND_ERROR_IS_FATAL ANY)

file(WRITE "${FOLDER}/commands" "
set confirm off
set breakpoint pending on
break stop_outside
break stop_inside
run
print split
print empty
print scalar
print layer
print mesh
continue
print block
continue
print block
kill
")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env SHMAP_DEVICES=cpu:4 "${GDB}" -nx -batch
          -iex "add-auto-load-safe-path ${PREFIX}" -x "${FOLDER}/commands" "${FOLDER}/program"
  OUTPUT_VARIABLE output
  ERROR_VARIABLE errors
  RESULT_VARIABLE status)
if(errors MATCHES "ptrace: Operation not permitted|Couldn't get registers|Could not trace the inferior")
  message("gdb cannot start programs here: skipped")
  return()
endif()
foreach(
  wanted
  "= f32[2,4], P('j', 'i') on Mesh('i': 2, 'j': 2) of devices 0 to 3\n[[0. 1. 2. 3.]\n [4. 5. 6. 7.]]"
  "= <empty Array>"
  "= f32[], a host scalar\n2.5"
  "= Mesh('i': 2, 'j': 2) of devices 0 to 3\n"
  "{w = f32[3], P() on device 0\n[1. 1. 1.], units = 3}"
  "= f32[1]{i}, a block on each of Mesh('i': 2, 'j': 2) of devices 0 to 3\nOn CpuDevice(id=0) at mesh coordinates (i, j,) = (0, 0,):\n[0.]"
  "On CpuDevice(id=3) at mesh coordinates (i, j,) = (1, 1,):\n[1.]"
  "= f32[2], traced: it has no values yet")
  string(FIND "${output}" "${wanted}" at)
  if(at LESS 0)
    message(FATAL_ERROR "gdb (status ${status}) prints\n${output}${errors}\nwithout\n${wanted}")
  endif()
endforeach()
