# Optional libraries. Each SHMAP_WITH_<NAME> is AUTO (use it when it is found), ON (it must be
# found) or OFF. A library that is found becomes the interface target shmap_feature_<name>, which
# core/cpu alone links; it defines SHMAP_HAVE_<NAME>=1. A library that is absent is absent: the
# code that would use it is not compiled, and plain C++ does its work.

set(SHMAP_PRIVATE_LIBRARIES "") # what libshmap itself links
set_property(GLOBAL PROPERTY SHMAP_FEATURE_TABLE "")

# shmap_feature_row(<name> <version or state> <what it gives>): a line of the feature table.
function(shmap_feature_row name state gives)
  set_property(GLOBAL APPEND PROPERTY SHMAP_FEATURE_TABLE "${name}|${state}|${gives}")
endfunction()

function(shmap_print_features)
  get_property(rows GLOBAL PROPERTY SHMAP_FEATURE_TABLE)
  set(text "shmap ${PROJECT_VERSION} (${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} "
           "${CMAKE_CXX_COMPILER_VERSION}")
  if(BUILD_SHARED_LIBS)
    list(APPEND text ", shared")
  else()
    list(APPEND text ", static")
  endif()
  if(SHMAP_SANITIZE)
    list(APPEND text ", ${SHMAP_SANITIZE} sanitizer")
  endif()
  list(APPEND text ")")
  list(JOIN text "" text)
  message(STATUS "${text}")
  foreach(row IN LISTS rows)
    string(REPLACE "|" ";" cells "${row}")
    list(POP_FRONT cells name state gives)
    foreach(cell_width name:18 state:22)
      string(REPLACE ":" ";" pair "${cell_width}")
      list(POP_FRONT pair cell width)
      string(LENGTH "${${cell}}" length)
      math(EXPR fill "${width} - ${length}")
      if(fill LESS 1)
        set(fill 1)
      endif()
      string(REPEAT " " ${fill} spaces)
      set(${cell} "${${cell}}${spaces}")
    endforeach()
    message(STATUS "  ${name}${state}${gives}")
  endforeach()
endfunction()

# shmap_find_library(<NAME> <header> <library> <version headers> <version regex> [OPENED_LATE])
# Declares SHMAP_WITH_<NAME>, looks for the library and, where it is found, sets <NAME>_FOUND and
# <NAME>_VERSION_FOUND. The regex has two groups, a name (of a version's part) and a number. A
# library OPENED_LATE is not linked: the program opens it when it first needs it.
macro(shmap_find_library name header library version_headers version_regex)
  set(SHMAP_WITH_${name}
      AUTO
      CACHE STRING "Use ${name}: AUTO, ON or OFF")
  set_property(CACHE SHMAP_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT SHMAP_WITH_${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "SHMAP_WITH_${name} is '${SHMAP_WITH_${name}}': it is AUTO, ON or OFF")
  endif()
  set(${name}_FOUND FALSE)
  if(NOT SHMAP_WITH_${name} STREQUAL "OFF")
    set(flavours ${library} ${library}-pthread ${library}-openmp ${library}-serial)
    list(TRANSFORM flavours PREPEND "${CMAKE_LIBRARY_ARCHITECTURE}/" OUTPUT_VARIABLE arch_flavours)
    find_path(SHMAP_${name}_INCLUDE ${header} PATH_SUFFIXES ${flavours} ${arch_flavours})
    find_library(SHMAP_${name}_LIBRARY ${library} PATH_SUFFIXES ${flavours} ${arch_flavours})
    mark_as_advanced(SHMAP_${name}_INCLUDE SHMAP_${name}_LIBRARY)
    if(SHMAP_${name}_INCLUDE AND SHMAP_${name}_LIBRARY)
      set(${name}_FOUND TRUE)
      shmap_header_version("${SHMAP_${name}_INCLUDE}" "${version_headers}" "${version_regex}"
                           ${name}_VERSION_FOUND)
      if(NOT "${ARGN}" STREQUAL "OPENED_LATE")
        list(APPEND SHMAP_PRIVATE_LIBRARIES "${SHMAP_${name}_LIBRARY}")
      endif()
    endif()
  endif()
endmacro()

# The version that a header defines, as one string or as major, minor and patch.
function(shmap_header_version include_dir headers regex result)
  set(parts "")
  foreach(header IN LISTS headers)
    if(EXISTS "${include_dir}/${header}")
      file(STRINGS "${include_dir}/${header}" lines REGEX "define +${regex}")
      foreach(line IN LISTS lines)
        string(REGEX MATCH "${regex}" unused "${line}")
        set(part_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
      endforeach()
    endif()
  endforeach()
  if(DEFINED part_VERSION)
    set(${result} "${part_VERSION}" PARENT_SCOPE)
  elseif(DEFINED part_RELEASE)
    set(${result} "${part_MAJOR}.${part_MINOR}.${part_RELEASE}" PARENT_SCOPE)
  elseif(DEFINED part_MAJOR)
    set(${result} "${part_MAJOR}.${part_MINOR}.${part_PATCH}" PARENT_SCOPE)
  else()
    set(${result} "of unknown version" PARENT_SCOPE)
  endif()
endfunction()

# shmap_feature(<NAME> <package to install> <what it gives>)
# Makes shmap_feature_<name>, and fails where the library was demanded and is absent.
function(shmap_feature name package gives)
  string(TOLOWER ${name} lower)
  add_library(shmap_feature_${lower} INTERFACE)
  if(SHMAP_WITH_${name} STREQUAL "OFF")
    shmap_feature_row(${lower} "off" "${gives}")
  elseif(${name}_FOUND)
    target_include_directories(shmap_feature_${lower} SYSTEM INTERFACE "${SHMAP_${name}_INCLUDE}")
    target_compile_definitions(shmap_feature_${lower} INTERFACE SHMAP_HAVE_${name}=1)
    shmap_feature_row(${lower} "${${name}_VERSION_FOUND}" "${gives}")
  elseif(SHMAP_WITH_${name} STREQUAL "ON")
    message(FATAL_ERROR "SHMAP_WITH_${name} is ON and ${name} was not found: "
                        "install ${package}, or set it to AUTO or OFF")
  else()
    shmap_feature_row(${lower} "not found" "${gives} (${package})")
  endif()
endfunction()

# fmt is used header-only, by .cpp files only, so nothing of it reaches a consumer.
find_package(fmt REQUIRED)
shmap_feature_row(fmt "${fmt_VERSION}" "formatting (header-only, private)")

# oneDNN, Highway and hwloc are looked up by header and library rather than by their packages:
# oneDNN's asks for OpenCL, which nothing here needs and a fresh machine lacks.
shmap_find_library(ONEDNN oneapi/dnnl/dnnl.hpp dnnl
                   oneapi/dnnl/dnnl_version.h "DNNL_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)" OPENED_LATE)
shmap_feature(ONEDNN libdnnl-dev "matrix products in bf16, f16 and f32, opened on first use")

# Opened at run time, so that OPENBLAS_CORETYPE can be set before it loads.
shmap_find_library(OPENBLAS openblas_config.h openblas
                   openblas_config.h "OPENBLAS_(VERSION).* ([0-9]+\\.[0-9]+\\.[0-9]+)" OPENED_LATE)
shmap_feature(OPENBLAS libopenblas-dev "matrix products in f32 and f64, opened on first use")

shmap_find_library(HIGHWAY hwy/highway.h hwy
                   "hwy/highway.h;hwy/base.h" "HWY_(MAJOR|MINOR|PATCH) +([0-9]+)")
shmap_feature(HIGHWAY libhwy-dev "elementwise kernels for the CPU that runs them")
if(SHMAP_HIGHWAY_LIBRARY MATCHES "\\.so$")
  target_compile_definitions(shmap_feature_highway INTERFACE HWY_SHARED_DEFINE)
endif()

shmap_find_library(
  HWLOC hwloc.h hwloc
  "hwloc/autogen/config.h;${CMAKE_LIBRARY_ARCHITECTURE}/hwloc/autogen/config.h"
  "HWLOC_(VERSION) \"([0-9.]+)\"")
shmap_feature(HWLOC libhwloc-dev "cache sizes and core topology")

shmap_find_library(
  MPI mpi.h mpi
  "mpi.h" "OMPI_(MAJOR|MINOR|RELEASE)_VERSION +([0-9]+)" OPENED_LATE)
shmap_feature(MPI libopenmpi-dev "several processes (OpenMPI), opened where mpirun started them")

list(APPEND SHMAP_PRIVATE_LIBRARIES ${CMAKE_DL_LIBS})
