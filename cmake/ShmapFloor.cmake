# shmap_internal(<target>): compiled as the project's own code is, with its internal headers.
function(shmap_internal target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include"
                                               "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE shmap_build_flags fmt::fmt-header-only Threads::Threads)
endfunction()

# The standard headers that most sources include, compiled once. Folders that are CHECKED, or that are
# compiled without optimisation, do without: a precompiled header serves only code with the same flags.
# Builds with clang compile every source with its own includes alone, and so find those that are missing.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>") # ccache asks for it
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/standard_headers.cpp" "")
  add_library(shmap_headers OBJECT "${CMAKE_CURRENT_BINARY_DIR}/standard_headers.cpp")
  shmap_internal(shmap_headers)
  target_link_libraries(shmap_headers PRIVATE shmap_library_flags)
  target_precompile_headers(
    shmap_headers PRIVATE <algorithm> <array> <atomic> <chrono> <cstring> <functional> <map> <memory>
    <mutex> <optional> <set> <span> <string> <unordered_map> <utility> <vector>)
endif()

# Several sources of a folder as one unit of compilation, which parses their common headers once: sources that
# are mostly compiled for these headers take half as long together, and a change of one of them compiles all of
# its unit. Names without linkage must then be unique within a folder.
option(SHMAP_UNITY "Compile sources of a folder of the library together" OFF)

# shmap_units(<result> <name> <source>...): files that include the sources, ten each. The units
# that CMake's UNITY_BUILD writes name the sources by absolute paths: two checkouts could not share what
# the compiler cache holds.
function(shmap_units result name)
  set(units "")
  list(LENGTH ARGN count)
  set(at 0)
  set(in_a_unit 10)
  while(at LESS count)
    list(SUBLIST ARGN ${at} ${in_a_unit} batch)
    set(text "")
    foreach(source IN LISTS batch)
      file(RELATIVE_PATH source "${PROJECT_SOURCE_DIR}" "${source}")
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    set(unit "${CMAKE_BINARY_DIR}/shmap_units/${name}_from_${at}.cpp")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}" @ONLY)
    list(APPEND units "${unit}")
    math(EXPR at "${at} + ${in_a_unit}")
  endwhile()
  set(${result} "${units}" PARENT_SCOPE)
endfunction()

# shmap_floor([CHECKED] [features...] [APART sources...]): the sources of the current folder become the object
# library shmap_<folder> (core/base: shmap_core_base), which libshmap is put together from. A folder
# without sources makes no target; a folder inside that has a CMakeLists.txt of its own is left to
# that. APART: sources that are never compiled together with others, as they have flags of their own; they
# may lie elsewhere. The features are the shmap_feature_<name> that it may use. CHECKED: it reads what others wrote
# (shmap_checked_flags).
function(shmap_floor)
  cmake_parse_arguments(arg "CHECKED" "" "APART" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  file(GLOB_RECURSE inner "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
  foreach(file IN LISTS inner)
    get_filename_component(folder "${file}" DIRECTORY)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  if(arg_APART)
    list(REMOVE_ITEM sources ${arg_APART})
  endif()
  if(NOT sources AND NOT arg_APART)
    return()
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" name "shmap_${folder}")
  if(SHMAP_UNITY)
    shmap_units(units ${name} ${sources})
    add_library(${name} OBJECT ${units} ${arg_APART})
    # Types without linkage in an included file are taken for those of a header, of which GCC warns.
    target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
  else()
    add_library(${name} OBJECT ${sources} ${arg_APART})
  endif()
  shmap_internal(${name})
  target_link_libraries(${name} PRIVATE shmap_library_flags)
  if(arg_CHECKED)
    target_link_libraries(${name} PRIVATE shmap_checked_flags)
  endif()
  # In the simulator kernels are functions of the host, with their arguments in its frames.
  if(NOT (SHMAP_CUDA_BACKEND STREQUAL "sim" AND folder STREQUAL "cuda"))
    target_link_libraries(${name} PRIVATE shmap_frame_flags)
  endif()
  foreach(feature IN LISTS arg_UNPARSED_ARGUMENTS)
    target_link_libraries(${name} PRIVATE shmap_feature_${feature})
  endforeach()
  get_directory_property(folder_options COMPILE_OPTIONS)
  if(TARGET shmap_headers AND NOT arg_CHECKED AND NOT "-O0" IN_LIST folder_options)
    target_precompile_headers(${name} REUSE_FROM shmap_headers)
    # GCC 12 warns wrongly of sums of strings; without the precompiled header the warnings are hidden,
    # because they are of a system's header. Folders that are CHECKED keep them.
    target_compile_options(
      ${name}
      PRIVATE
        "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>")
  endif()
  set_property(GLOBAL APPEND PROPERTY SHMAP_FLOORS ${name})
  set_property(GLOBAL APPEND PROPERTY SHMAP_SOURCES ${sources} ${arg_APART})
endfunction()
