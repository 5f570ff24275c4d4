# Tools that tests need besides the library. A test that is silently left out looks like one that
# passed, so a missing tool stops CMake, unless SHMAP_TESTS_WITHOUT has its name.
set(SHMAP_TESTS_WITHOUT
    ""
    CACHE STRING "Tools whose tests are left out where they are missing, or 'any'")

# shmap_test_tool(<whether it was found> <name> <package> <what it tests>): stops CMake where the tool is
# missing and not in SHMAP_TESTS_WITHOUT; a tool that is left out is a row of the feature table.
function(shmap_test_tool found name package tests)
  if(found)
    return()
  endif()
  if(NOT name IN_LIST SHMAP_TESTS_WITHOUT AND NOT SHMAP_TESTS_WITHOUT STREQUAL "any")
    message(
      FATAL_ERROR
        "${name} was not found, and ${tests} need it: ./scripts/install_deps --dev installs it (${package}). "
        "Or leave them out: -DSHMAP_TESTS_WITHOUT=${name} (a list; 'any': whatever is missing). "
        "Or build no tests: -DSHMAP_BUILD_TESTS=OFF.")
  endif()
  shmap_feature_row(${name} "not found" "tests: without ${tests} (${package})")
endfunction()
