#include "cuda/libraries/nvrtc_api.h"

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

struct MajorVersion {
  int major;
  const char* name;
};
constexpr MajorVersion kVersions[] = {{13, "libnvrtc.so.13"},
                                      {12, "libnvrtc.so.12"}};  // newest first
constexpr const char* kAnyVersion = "libnvrtc.so";

NvrtcApi open_nvrtc() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const std::vector<const char*> names = nvrtc_names(driver);
  const LateLibraryInfo info = {"NVRTC", names, env::Var::nvrtc_path, "nvrtcVersion",
                                "the CUDA toolkit's libnvrtc (libnvrtc12 in Debian)"};
  const LateLibrary library(info);
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

std::vector<const char*> nvrtc_names(int driver) {
  std::vector<const char*> names, newer;
  for (const auto& [major, name] : kVersions)
    (driver == 0 || major <= driver / 1000 ? names : newer).push_back(name);
  names.push_back(kAnyVersion);
  names.insert(names.end(), newer.rbegin(), newer.rend());
  return names;
}

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
