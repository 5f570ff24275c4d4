#include "cuda/libraries/nvrtc_api.h"

#include <string>

#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

// Any major version: the driver, which loads the images, checks what it can load.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr LateLibraryInfo kInfo = {"NVRTC", kNames, env::Var::nvrtc_path, "nvrtcVersion",
                                   "the CUDA toolkit's libnvrtc (libnvrtc12 in Debian)"};

NvrtcApi open_nvrtc() {
  const LateLibrary library(kInfo);
  NvrtcApi api{};
  decltype(&nvrtcVersion) version;
  library.load("nvrtcVersion", version);
  if (version(&api.major, &api.minor) != NVRTC_SUCCESS || api.major < 12)
    library.throw_version(std::to_string(api.major) + "." + std::to_string(api.minor), "12.0");
  library.load("nvrtcGetErrorString", api.error_string);
  library.load("nvrtcGetNumSupportedArchs", api.arch_count);
  library.load("nvrtcGetSupportedArchs", api.archs);
  library.load("nvrtcCreateProgram", api.create_program);
  library.load("nvrtcDestroyProgram", api.destroy_program);
  library.load("nvrtcCompileProgram", api.compile_program);
  library.load("nvrtcGetProgramLogSize", api.log_size);
  library.load("nvrtcGetProgramLog", api.log);
  library.load("nvrtcGetCUBINSize", api.cubin_size);
  library.load("nvrtcGetCUBIN", api.cubin);
  library.load("nvrtcGetPTXSize", api.ptx_size);
  library.load("nvrtcGetPTX", api.ptx);
  return api;
}

}  // namespace

const NvrtcApi& nvrtc() {
  static const NvrtcApi api = open_nvrtc();  // a failed open_nvrtc() throws, and is tried again at
                                             // the next call
  return api;
}

void check(nvrtcResult status, const char* what) {
  if (status == NVRTC_SUCCESS) return;
  throw DeviceError(std::string(what) + ": " + nvrtc().error_string(status));
}

}  // namespace shmap::cuda
