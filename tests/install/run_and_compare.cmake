# Runs PROGRAM and fails unless it exits with 0 and prints exactly the text of the file EXPECTED.
execute_process(
  COMMAND "${PROGRAM}"
  RESULT_VARIABLE status
  OUTPUT_VARIABLE output
  ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} exits with ${status}:\n${output}${errors}")
endif()
file(READ "${EXPECTED}" expected)
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} prints\n${output}\ninstead of\n${expected}")
endif()
