#include "cuda/driver/error.h"

#include "core/device/backend.h"
#include "cuda/driver/health.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

const char* remedy(cudaError_t code) noexcept {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return ". A kernel made an invalid access: run under compute-sanitizer, or set "
             "CUDA_LAUNCH_BLOCKING=1 so that the failing launch reports it";
    case cudaErrorECCUncorrectable:
      return ". The hardware reports damage: see nvidia-smi -q";
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorUnsupportedPtxVersion:
      return ". Install a newer NVIDIA driver, or set SHMAP_DEVICES=cpu:8";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return ". The library was not compiled for this GPU's architecture: add it to "
             "CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureInvalidated:
      return ". The call cannot be recorded into a graph; make it before the capture";
    default:
      return "";
  }
}

}  // namespace

bool is_sticky(cudaError_t code) noexcept {
  switch (static_cast<int>(code)) {
    case 226:  // cudaErrorContained and, below, cudaErrorTensorMemoryLeak, which CUDA 12.4 lacks
    case 721:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

bool is_unloading(cudaError_t code) noexcept {
  return code == cudaErrorCudartUnloading || code == cudaErrorContextIsDestroyed;
}

std::string describe(cudaError_t code) {
  return std::string(cudaGetErrorString(code)) + " (" + cudaGetErrorName(code) + ")";
}

void note(cudaError_t code) noexcept {
  if (code == cudaSuccess || code == cudaErrorNotReady) return;
  cudaGetLastError();
  if (is_sticky(code)) Health::lost(code, "");
}

void throw_cuda_error(cudaError_t code, const char* call) {
  cudaGetLastError();  // clears a non-sticky error, which the next call would otherwise return
  int gpu = -1;
  if (cudaGetDevice(&gpu) != cudaSuccess) cudaGetLastError();
  const char* task = detail::thread_state.task;
  std::string text = std::string(call) + " failed";
  if (gpu >= 0) text += " on GPU " + std::to_string(gpu);
  if (task != nullptr) text += ", in '" + std::string(task) + "'";
  text += ": " + describe(code) + remedy(code);
  if (code == cudaErrorMemoryAllocation) {
    throw OutOfMemory(text +
                      ". Let go of arrays that are no longer needed, or lower what other "
                      "processes hold on this GPU.");
  }
  if (is_sticky(code)) Health::lost(code, call);
  throw DeviceError(text);
}

}  // namespace shmap::cuda
