# Runs the lines with which the README and docs/build.md compile a program without CMake, as they stand
# there, in FOLDER with HOME as the home directory, where the library is installed in ~/.local. The
# program is the README's first, and has to print the block of text that stands after it.
file(READ "${SOURCE_DIR}/README.md" readme)

function(block_of_readme language variable)
  if(NOT readme MATCHES "\n```${language}\n")
    message(FATAL_ERROR "the README has no block of ${language}")
  endif()
  string(FIND "${readme}" "\n```${language}\n" start)
  string(LENGTH "\n```${language}\n" length)
  math(EXPR start "${start} + ${length}")
  string(SUBSTRING "${readme}" ${start} -1 rest)
  string(FIND "${rest}" "\n```" end)
  string(SUBSTRING "${rest}" 0 ${end} block)
  set(${variable} "${block}\n" PARENT_SCOPE)
endfunction()
block_of_readme(cpp program)
block_of_readme(text expected)

# The README's one line that begins with g++.
if(NOT readme MATCHES "\n(g\\+\\+ [^\n]*)\n")
  message(FATAL_ERROR "the README has no line that begins with g++")
endif()
set(lines "${CMAKE_MATCH_1}")
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  file(READ "${SOURCE_DIR}/docs/build.md" build)
  if(NOT build MATCHES "\n(g\\+\\+ [^\n]*pkg-config[^\n]*)\n")
    message(FATAL_ERROR "docs/build.md has no line that begins with g++ and uses pkg-config")
  endif()
  list(APPEND lines "${CMAKE_MATCH_1}")
endif()

file(WRITE "${FOLDER}/examples/hello.cpp" "${program}")
foreach(line IN LISTS lines)
  file(REMOVE "${FOLDER}/hello")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env "HOME=${HOME}" sh -c "${line} && ./hello"
    WORKING_DIRECTORY "${FOLDER}"
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE errors)
  if(NOT status EQUAL 0 OR NOT output STREQUAL expected)
    message(FATAL_ERROR "${line}\nends with ${status} and prints\n${output}${errors}\n"
                        "instead of\n${expected}")
  endif()
endforeach()
