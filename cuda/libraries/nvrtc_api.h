// The functions of NVRTC that this library calls. For the .cpp files that call them.
#pragma once
#include <nvrtc.h>

#include <vector>

namespace shmap::cuda {

struct NvrtcApi {
  int major, minor;  // its version
  decltype(&nvrtcGetErrorString) error_string;
  decltype(&nvrtcGetNumSupportedArchs) arch_count;
  decltype(&nvrtcGetSupportedArchs) archs;
  decltype(&nvrtcCreateProgram) create_program;
  decltype(&nvrtcDestroyProgram) destroy_program;
  decltype(&nvrtcCompileProgram) compile_program;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetPTXSize) ptx_size;
  decltype(&nvrtcGetPTX) ptx;
};

// The names under which NVRTC is looked for, in this order, with a driver of that version (12040
// for CUDA 12.4; 0: none). A driver loads what an NVRTC of its own major version or an older one
// makes: the newest of these comes first. Newer ones come last, whose images the driver may refuse.
std::vector<const char*> nvrtc_names(int driver);

// NVRTC, opened at the first call. DeviceError where it is absent or too old. Any thread.
const NvrtcApi& nvrtc();

// Throws DeviceError where `status` is an error. `what`: the function.
void check(nvrtcResult status, const char* what);

}  // namespace shmap::cuda
