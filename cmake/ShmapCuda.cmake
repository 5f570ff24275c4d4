# The CUDA backend. SHMAP_WITH_CUDA is AUTO (where nvcc is found, in a shared build), ON, OFF, or
# SIM: compiled as plain C++ against the simulator of the CUDA runtime in cuda_sim, for tests
# on machines without a GPU.
#
# SHMAP_CUDA_BACKEND is then "cuda", "sim" or empty; the target shmap_feature_cuda says where the
# headers are, and which library the runtime comes from.
set(SHMAP_WITH_CUDA
    AUTO
    CACHE STRING "The CUDA backend: AUTO, ON, OFF or SIM")
set_property(CACHE SHMAP_WITH_CUDA PROPERTY STRINGS AUTO ON OFF SIM)
if(NOT SHMAP_WITH_CUDA MATCHES "^(AUTO|ON|OFF|SIM)$")
  message(FATAL_ERROR "SHMAP_WITH_CUDA is '${SHMAP_WITH_CUDA}': it is AUTO, ON, OFF or SIM")
endif()

set(SHMAP_CUDA_BACKEND "")
set(cuda_gives "GPUs: kernels, graphs, peer copies")
if(SHMAP_WITH_CUDA STREQUAL "SIM")
  set(SHMAP_CUDA_BACKEND sim)
  shmap_feature_row(cuda "simulated" "${cuda_gives} (for tests)")
elseif(SHMAP_WITH_CUDA STREQUAL "OFF")
  shmap_feature_row(cuda "off" "${cuda_gives}")
elseif(NOT BUILD_SHARED_LIBS)
  if(SHMAP_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SHMAP_WITH_CUDA is ON in a static build: set BUILD_SHARED_LIBS=ON, a static "
                        "libshmap is for CPUs alone")
  endif()
  shmap_feature_row(cuda "off" "${cuda_gives} (a static library is for CPUs alone)")
elseif(SHMAP_SANITIZE)
  shmap_feature_row(cuda "off" "${cuda_gives} (not under sanitizers)")
else()
  include(CheckLanguage)
  # Without it CMake would try architectures that new toolkits have dropped.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 does not know how nvcc is asked for C++20.
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    # Debian's nvcc brings an older g++. Its folder would come before that of the C++ compiler, which
    # links the library and has to find its own runtime library.
    list(FILTER CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES EXCLUDE REGEX "/gcc/")
    find_package(CUDAToolkit 12.4)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(SHMAP_CUDA_BACKEND cuda)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    list(APPEND SHMAP_PRIVATE_LIBRARIES CUDA::cudart_static)
    shmap_feature_row(cuda "${CUDAToolkit_VERSION}" "${cuda_gives}, sm_${CMAKE_CUDA_ARCHITECTURES}")
  elseif(SHMAP_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SHMAP_WITH_CUDA is ON and no CUDA toolkit of at least 12.4 was found: put "
                        "nvcc on PATH, or run scripts/install_deps --cuda, or set it to AUTO or OFF")
  else()
    shmap_feature_row(cuda "not found" "${cuda_gives} (CUDA 12.4 or newer)")
  endif()
endif()

if(SHMAP_CUDA_BACKEND)
  add_library(shmap_feature_cuda INTERFACE)
  if(SHMAP_CUDA_BACKEND STREQUAL "sim")
    target_include_directories(shmap_feature_cuda SYSTEM BEFORE
                               INTERFACE "${PROJECT_SOURCE_DIR}/cuda_sim/include")
    # Kernels must compute the bits of the arithmetic as it is written; nvcc is told the same.
    target_compile_options(shmap_feature_cuda INTERFACE -ffp-contract=off)
  else()
    target_include_directories(shmap_feature_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    target_compile_options(
      shmap_feature_cuda
      INTERFACE
        "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr>"
        "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-fvisibility-inlines-hidden>"
        "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${SHMAP_WERROR}>>:-Werror=all-warnings>")
  endif()
endif()

# NCCL is opened on first use: only its header is wanted.
set(nccl_gives "collectives among distinct GPUs, opened on first use")
if(SHMAP_CUDA_BACKEND STREQUAL "sim")
  add_library(shmap_feature_nccl INTERFACE) # its header stands beside the simulator's
  shmap_feature_row(nccl "simulated" "${nccl_gives}")
elseif(SHMAP_CUDA_BACKEND)
  find_path(SHMAP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(SHMAP_NCCL_INCLUDE)
  set(nccl_version "")
  if(SHMAP_NCCL_INCLUDE)
    shmap_header_version("${SHMAP_NCCL_INCLUDE}" nccl.h "NCCL_(MAJOR|MINOR|PATCH) +([0-9]+)"
                         nccl_version)
  endif()
  if(NOT SHMAP_NCCL_INCLUDE)
    shmap_feature_row(nccl "not found" "${nccl_gives} (libnccl-dev)")
  elseif(nccl_version VERSION_LESS 2.22)
    shmap_feature_row(nccl "${nccl_version}" "not used: 2.22 or newer is wanted (libnccl-dev)")
  else()
    add_library(shmap_feature_nccl INTERFACE)
    target_include_directories(shmap_feature_nccl SYSTEM INTERFACE "${SHMAP_NCCL_INCLUDE}")
    shmap_feature_row(nccl "${nccl_version}" "${nccl_gives}")
  endif()
endif()

# shmap_cuda_floor(): as shmap_floor, of a folder with .cu files.
#
# In the simulator .cu files are plain C++. Files that only nvcc can compile, since they use a
# library of device code, have a stand-in cuda_sim/replace/<name>.cpp.
function(shmap_cuda_floor)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
  set(more "")
  foreach(kernel IN LISTS kernels)
    get_filename_component(name "${kernel}" NAME_WE)
    set(replacement "${PROJECT_SOURCE_DIR}/cuda_sim/replace/${name}.cpp")
    if(NOT SHMAP_CUDA_BACKEND STREQUAL "sim")
      list(APPEND more "${kernel}")
    elseif(EXISTS "${replacement}")
      list(APPEND more "${replacement}")
    else()
      set_source_files_properties("${kernel}" PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
      list(APPEND more "${kernel}")
    endif()
  endforeach()
  shmap_floor(cuda APART ${more})
endfunction()
