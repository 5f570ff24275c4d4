// The names and texts of errors.
#include <cstddef>

#include "runtime.h"

namespace shmap_sim {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define SHMAP_SIM_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    SHMAP_SIM_ERROR(cudaSuccess, "no error"),
    SHMAP_SIM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SHMAP_SIM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SHMAP_SIM_ERROR(cudaErrorInitializationError, "initialization error"),
    SHMAP_SIM_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    SHMAP_SIM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SHMAP_SIM_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    SHMAP_SIM_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    SHMAP_SIM_ERROR(cudaErrorInvalidHostPointer, "invalid host pointer"),
    SHMAP_SIM_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    SHMAP_SIM_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    SHMAP_SIM_ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    SHMAP_SIM_ERROR(cudaErrorInsufficientDriver,
                    "CUDA driver version is insufficient for CUDA runtime version"),
    SHMAP_SIM_ERROR(cudaErrorCallRequiresNewerDriver, "API call needs a newer driver"),
    SHMAP_SIM_ERROR(cudaErrorDevicesUnavailable, "device(s) busy or unavailable"),
    SHMAP_SIM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    SHMAP_SIM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SHMAP_SIM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SHMAP_SIM_ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    SHMAP_SIM_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    SHMAP_SIM_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image for this device"),
    SHMAP_SIM_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error"),
    SHMAP_SIM_ERROR(cudaErrorPeerAccessUnsupported, "no peer access between the two devices"),
    SHMAP_SIM_ERROR(cudaErrorInvalidPtx, "invalid PTX"),
    SHMAP_SIM_ERROR(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error"),
    SHMAP_SIM_ERROR(cudaErrorUnsupportedPtxVersion, "PTX of an unsupported version"),
    SHMAP_SIM_ERROR(cudaErrorFileNotFound, "file not found"),
    SHMAP_SIM_ERROR(cudaErrorOperatingSystem, "a call of the operating system failed"),
    SHMAP_SIM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SHMAP_SIM_ERROR(cudaErrorIllegalState, "operation not permitted in this state"),
    SHMAP_SIM_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    SHMAP_SIM_ERROR(cudaErrorNotReady, "device not ready"),
    SHMAP_SIM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SHMAP_SIM_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    SHMAP_SIM_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    SHMAP_SIM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    SHMAP_SIM_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    SHMAP_SIM_ERROR(cudaErrorContextIsDestroyed, "context is destroyed"),
    SHMAP_SIM_ERROR(cudaErrorAssert, "device-side assert triggered"),
    SHMAP_SIM_ERROR(cudaErrorTooManyPeers, "peer mapping resources exhausted"),
    SHMAP_SIM_ERROR(cudaErrorHostMemoryAlreadyRegistered, "host memory is already registered"),
    SHMAP_SIM_ERROR(cudaErrorHostMemoryNotRegistered, "host memory is not registered"),
    SHMAP_SIM_ERROR(cudaErrorHardwareStackError, "hardware stack error"),
    SHMAP_SIM_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    SHMAP_SIM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    SHMAP_SIM_ERROR(cudaErrorInvalidAddressSpace, "operation on a wrong address space"),
    SHMAP_SIM_ERROR(cudaErrorInvalidPc, "invalid program counter"),
    SHMAP_SIM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SHMAP_SIM_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    SHMAP_SIM_ERROR(cudaErrorNotSupported, "operation not supported"),
    SHMAP_SIM_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    SHMAP_SIM_ERROR(cudaErrorSystemDriverMismatch, "driver and library versions differ"),
    SHMAP_SIM_ERROR(cudaErrorMpsClientTerminated, "the MPS server has ended this client"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureUnsupported,
                    "operation not permitted when stream is capturing"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureInvalidated,
                    "operation failed due to a previous error during capture"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureMerge,
                    "operation would result in a merge of separate capture sequences"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureUnmatched,
                    "capture was not ended in the same stream as it began"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureIsolation,
                    "dependency created on uncaptured work in another stream"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureImplicit,
                    "operation would make the legacy stream depend on a capturing blocking stream"),
    SHMAP_SIM_ERROR(cudaErrorCapturedEvent,
                    "operation not permitted on an event last recorded in a capturing stream"),
    SHMAP_SIM_ERROR(cudaErrorStreamCaptureWrongThread,
                    "attempt to terminate a thread-local capture sequence from another thread"),
    SHMAP_SIM_ERROR(cudaErrorTimeout, "wait operation timed out"),
    SHMAP_SIM_ERROR(cudaErrorGraphExecUpdateFailure,
                    "the graph update was not performed: it broke a constraint"),
    SHMAP_SIM_ERROR(cudaErrorExternalDevice, "an error in a device outside of CUDA"),
    SHMAP_SIM_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef SHMAP_SIM_ERROR

const ErrorText* text_of(cudaError_t error) {
  for (const ErrorText& e : kErrors) {
    if (e.error == error) return &e;
  }
  return nullptr;
}

}  // namespace
}  // namespace shmap_sim

using namespace shmap_sim;

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* text = text_of(error);
  return text == nullptr ? "unrecognized error code" : text->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* text = text_of(error);
  return text == nullptr ? "unrecognized error code" : text->text;
}

// The error of a lost device cannot be cleared.
cudaError_t cudaGetLastError() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const cudaError_t error = this_thread.last_error;
  this_thread.last_error = r.devices.empty() ? cudaSuccess : r.devices[this_thread.device]->lost;
  return error == cudaSuccess ? this_thread.last_error : error;
}

cudaError_t cudaPeekAtLastError() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  if (this_thread.last_error != cudaSuccess || r.devices.empty()) return this_thread.last_error;
  return r.devices[this_thread.device]->lost;
}
