# Fails unless COMPILER refuses SOURCE with a static assertion of the text WANTED, after less than 30 other lines,
# excerpts of the source apart, and with no errors but static assertions. WANTED may also stand beside the
# declaration of a deleted function, which compilers show.
set(ENV{LC_ALL} C)  # its errors in English
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -fsyntax-only -I "${INCLUDE}" "${SOURCE}"
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text)
if(status EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles")
endif()
# A GCC says "static assertion failed: <text>", a clang "static_assert failed … "<text>"".
# Nothing else comes before it.
string(REGEX MATCH "error: [^\n]*" error "${text}")
if(error MATCHES "deleted (function|operator)")
  string(FIND "${text}" "${WANTED}" position)
  if(position LESS 0)
    message(FATAL_ERROR "the declaration shown does not say \"${WANTED}\":\n${text}")
  endif()
  return()
endif()
if(NOT error MATCHES "^error: static")
  message(FATAL_ERROR "the first error is not a static assertion, but ${error}:\n${text}")
endif()
string(FIND "${text}" "${error}" position)
string(SUBSTRING "${text}" 0 ${position} before)
# GCC 14 shows the source of each instantiation, in lines that begin with its number and "|".
string(REGEX REPLACE "\n +[0-9]* *\\|[^\n]*" "" before "${before}")
string(REGEX MATCHALL "\n" before "${before}")
list(LENGTH before lines)
if(lines GREATER_EQUAL 30)
  message(FATAL_ERROR "the error comes after ${lines} other lines:\n${text}")
endif()
string(FIND "${error}" "${WANTED}" position)
if(position LESS 0)
  message(FATAL_ERROR "the error is not \"${WANTED}\":\n${text}")
endif()
string(REPLACE ";" "," text "${text}")
string(REGEX MATCHALL "error: [^\n]*" errors "${text}")
list(FILTER errors EXCLUDE REGEX "^error: static")
if(errors)
  message(FATAL_ERROR "errors follow the one that says what is wrong: ${errors}\n${text}")
endif()
