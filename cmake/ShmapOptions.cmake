# Options, the build type, and the flags that every file of this project is compiled with.

option(BUILD_SHARED_LIBS "Build libshmap as a shared library" ON)
option(SHMAP_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SHMAP_BUILD_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(SHMAP_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(SHMAP_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
option(SHMAP_CHECK_JAXPRS "Check the types of every jaxpr that a pass makes" OFF)
set(SHMAP_SANITIZE
    ""
    CACHE STRING "Sanitizers: empty, 'address' (address and undefined behaviour) or 'thread'")
set_property(CACHE SHMAP_SANITIZE PROPERTY STRINGS "" address thread)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE
      Release
      CACHE STRING "Release, Debug, RelWithDebInfo or MinSizeRel" FORCE)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # -O2 rather than CMake's -O3: the kernels ask for what they need, and the rest stays small.
  if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
    set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  endif()
  if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(SHMAP_CCACHE ccache)
    mark_as_advanced(SHMAP_CCACHE)
    if(SHMAP_CCACHE)
      # If it cannot write its cache (for a user without a home), ccache fails every compilation.
      set(probe "${PROJECT_BINARY_DIR}/CMakeFiles/ccache_probe")
      file(WRITE "${probe}.cpp" "")
      execute_process(
        COMMAND "${SHMAP_CCACHE}" "${CMAKE_CXX_COMPILER}" -c "${probe}.cpp" -o "${probe}.o"
        RESULT_VARIABLE status
        OUTPUT_QUIET ERROR_VARIABLE text)
      if(status EQUAL 0)
        set(CMAKE_CXX_COMPILER_LAUNCHER "${SHMAP_CCACHE}")
      else()
        message(STATUS "Without ccache, which fails: ${text}")
      endif()
    endif()
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

include(CheckCXXCompilerFlag)
# -fno-semantic-interposition: calls inside libshmap need not go through the PLT.
check_cxx_compiler_flag(-fno-semantic-interposition SHMAP_HAS_NO_SEMANTIC_INTERPOSITION)
# GCC 13 and 14 take a reference into an argument's node for one to the argument itself.
check_cxx_compiler_flag(-Wdangling-reference SHMAP_HAS_DANGLING_REFERENCE)

# Linked PRIVATE by each object library, test, benchmark and example; never by a consumer.
add_library(shmap_build_flags INTERFACE)
target_compile_options(
  shmap_build_flags
  INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-fvisibility-inlines-hidden;-fno-math-errno>"
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHMAP_HAS_DANGLING_REFERENCE}>>:-Wno-dangling-reference>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHMAP_WERROR}>>:-Werror>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHMAP_HAS_NO_SEMANTIC_INTERPOSITION}>>:-fno-semantic-interposition>
)
target_compile_features(shmap_build_flags INTERFACE cxx_std_20)
if(SHMAP_CHECK_JAXPRS)
  target_compile_definitions(shmap_build_flags INTERFACE SHMAP_CHECK_JAXPRS)
endif()

# Linked by the object libraries of libshmap alone. A frame above 16 KiB is a warning: tasks run on
# the stacks of a program's own threads too, which may be small.
add_library(shmap_library_flags INTERFACE)
add_library(shmap_frame_flags INTERFACE)
target_compile_options(
  shmap_frame_flags
  INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>,$<NOT:$<BOOL:${SHMAP_SANITIZE}>>>:-Wframe-larger-than=16384>
)

# Hardening of optimised builds. Copies whose sizes the compiler knows are checked, and functions with
# buffers of bytes find a stack that was written past. The folders that read what others wrote (files,
# texts, the environment) have more of it: all functions with arrays or addresses on the stack, and the
# indices of containers; it would slow down the path of an operation.
add_library(shmap_checked_flags INTERFACE)
if(NOT SHMAP_SANITIZE)
  check_cxx_compiler_flag(-fstack-protector-strong SHMAP_HAS_STACK_PROTECTOR)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles(
    "#include <cstring>\nint main() { return static_cast<int>(std::strlen(\"\")); }"
    SHMAP_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(fortify $<IF:$<BOOL:${SHMAP_HAS_FORTIFY_3}>,3,2>)
  target_compile_options(
    shmap_library_flags
    INTERFACE
      "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${fortify}>"
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHMAP_HAS_STACK_PROTECTOR}>>:-fstack-protector>)
  target_compile_options(
    shmap_checked_flags
    INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHMAP_HAS_STACK_PROTECTOR}>>:-fstack-protector-strong>)
  target_compile_definitions(shmap_checked_flags INTERFACE _GLIBCXX_ASSERTIONS)
endif()

if(SHMAP_SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
                     -g1)
elseif(SHMAP_SANITIZE STREQUAL "thread")
  set(sanitize_flags -fsanitize=thread -fno-omit-frame-pointer -g1)
elseif(SHMAP_SANITIZE)
  message(FATAL_ERROR "SHMAP_SANITIZE is '${SHMAP_SANITIZE}': it is empty, 'address' or 'thread'")
endif()
if(SHMAP_SANITIZE)
  add_compile_options(${sanitize_flags})
  add_link_options(${sanitize_flags})
endif()
