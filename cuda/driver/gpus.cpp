#include "cuda/driver/gpus.h"

#include <cuda.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/load_environment.h"
#include "core/base/warning.h"
#include "core/device/backend.h"
#include "core/processes/processes.h"
#include "cuda/driver/driver_function.h"
#include "cuda/driver/error.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The driver reads this variable when it starts. By default it has 8 hardware queues for each GPU,
// in which the streams of more than two devices would wait for each other needlessly.
__attribute__((constructor)) void ask_for_connections() {
  env::set_at_load("CUDA_DEVICE_MAX_CONNECTIONS", "32");
}

struct PeerAccess {
  std::mutex mutex;
  std::set<std::pair<int, int>> reached;  // from a GPU to another
};
PeerAccess& peers() {
  static auto* const access = new PeerAccess;
  return *access;
}

struct Sharing {
  std::mutex mutex;
  std::map<int, int> devices;  // of each GPU
};
Sharing& sharing() {
  static auto* const all = new Sharing;
  return *all;
}

// True if this process has a context on the GPU, or if the driver does not say. (A CUdevice is the
// GPU's number.)
bool has_context(int gpu) noexcept {
  static auto* const state =
      driver_function<decltype(cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  return state == nullptr || state(gpu, &flags, &active) != CUDA_SUCCESS || active != 0;
}

thread_local bool has_gpu = false;  // a GpuScope has given this thread a context

}  // namespace

void share_gpu(int gpu, int devices) {
  std::lock_guard lock(sharing().mutex);
  sharing().devices[gpu] = devices;
}

int devices_sharing(int gpu) {
  std::lock_guard lock(sharing().mutex);
  const auto known = sharing().devices.find(gpu);
  return known == sharing().devices.end() ? 1 : known->second;
}

GpuCount count_gpus() {
  GpuCount found;
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  const cudaError_t code = cudaGetDeviceCount(&found.gpus);
  if (code != cudaSuccess) {
    cudaGetLastError();
    found.gpus = 0;
  }
  if (found.gpus > 0) return found;
  if (driver == 0) {
    found.why = "no NVIDIA driver answers on this machine";
  } else if (code == cudaErrorInsufficientDriver) {
    found.too_old = true;
    found.why = "the NVIDIA driver is too old: it is of CUDA " + version_text(driver) +
                ", and this library was built with CUDA " + version_text(runtime) +
                ", which wants a driver of CUDA " + std::to_string(runtime / 1000) + ".0 or newer";
  } else if (code == cudaSuccess || code == cudaErrorNoDevice) {
    found.why = "no GPU is present, or CUDA_VISIBLE_DEVICES hides all";
  } else {
    found.why = "the NVIDIA driver does not answer: " + describe(code);
  }
  return found;
}

const GpuCount& present_gpus() {
  static const auto* const count = new GpuCount(count_gpus());
  return *count;
}

const char* default_gpus() {
  const GpuCount& found = present_gpus();
  if (found.too_old) warn(found.why + "; going on with the CPU");
  return found.gpus > 0 ? "cuda" : "";
}

std::vector<int> chosen_gpus(const DeviceSpec& spec, const GpuCount& found) {
  std::vector<int> gpus = spec.gpus;
  const Processes* const processes = Processes::joined();
  if (gpus.empty() && processes != nullptr && found.gpus > 0) {
    // Each process of this node uses one GPU, unless its launcher shows it only its own.
    const int number = found.gpus == 1 ? 0 : processes->peers().node_rank();
    if (number >= found.gpus) {
      throw DeviceError("\"cuda\" is one GPU of each process, and this node has " +
                        std::to_string(processes->peers().node_size()) + " processes and " +
                        std::to_string(found.gpus) +
                        " GPUs: start as many processes as there are GPUs, or say which GPUs each "
                        "is to have (SHMAP_DEVICES=cuda:I,J).");
    }
    gpus.push_back(number);
  } else if (gpus.empty()) {
    gpus.resize(static_cast<std::size_t>(found.gpus));
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  std::string asked;
  for (int gpu : gpus) asked += (asked.empty() ? "" : ", ") + std::to_string(gpu);
  if (found.gpus == 0) {
    throw DeviceError("devices on " + (asked.empty() ? "every GPU" : "GPU " + asked) +
                      " were asked for, but " + found.why +
                      ". Mend that, or set SHMAP_DEVICES=cpu:8.");
  }
  for (int gpu : gpus) {
    if (gpu < found.gpus) continue;
    throw DeviceError(
        "there is no GPU " + std::to_string(gpu) + ": GPU " + asked +
        (gpus.size() > 1 ? " were" : " was") + " asked for, and present " +
        (found.gpus == 1 ? "is GPU 0 alone" : "are GPU 0 to " + std::to_string(found.gpus - 1)) +
        ". Several devices on one GPU are cuda:0x" +
        std::to_string(std::max<std::size_t>(gpus.size(), 2)) + " (SHMAP_DEVICES).");
  }
  return gpus;
}

void enable_peer_access(std::span<const int> gpus) {
  for (int from : gpus) {
    const GpuScope scope(from);
    for (int to : gpus) {
      int possible = 0;
      if (from == to || cudaDeviceCanAccessPeer(&possible, from, to) != cudaSuccess) continue;
      if (possible == 0) continue;
      const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
      const bool refused = code == cudaErrorTooManyPeers;  // more than eight, without an NVSwitch
      if (refused || code == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
      else
        check(code, "cudaDeviceEnablePeerAccess");
      if (refused) continue;
      std::lock_guard lock(peers().mutex);
      peers().reached.emplace(from, to);
    }
  }
}

bool reaches(int gpu, int other) {
  std::lock_guard lock(peers().mutex);
  return peers().reached.contains({gpu, other});
}

int gpu_of(const void* device_memory) {
  if (present_gpus().gpus <= 1) return 0;
  // The driver's function, since cudaPointerGetAttributes creates a context on the current GPU.
  static auto* const attribute =
      driver_function<decltype(cuPointerGetAttribute)>("cuPointerGetAttribute");
  if (attribute == nullptr) throw DeviceError("the CUDA driver has no cuPointerGetAttribute");
  int gpu = 0;
  check(static_cast<cudaError_t>(attribute(&gpu, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                           reinterpret_cast<CUdeviceptr>(device_memory))),
        "cuPointerGetAttribute");
  return gpu;
}

void ensure_context(int gpu) noexcept {
  if (has_gpu) [[likely]]
    return;
  try {
    const GpuScope scope(gpu);
  } catch (const DeviceError&) {  // the caller's own call then says so
    return;
  }
}

void free_memory(int gpu, void* data) noexcept {
  try {
    const GpuScope scope(gpu);
    const UncapturedCalls uncaptured;  // another thread may free while it captures
    note(cudaFree(data));
  } catch (const DeviceError&) {
    return;
  }
}

// On a thread that never chose a GPU, GPU 0 is current, but the thread has no context until it
// calls a runtime function; driver functions do not create one.
GpuScope::GpuScope(int gpu) {
  int current = -1;
  check(cudaGetDevice(&current), "cudaGetDevice");
  if (current == gpu && has_gpu) return;
  check(cudaSetDevice(gpu), "cudaSetDevice");
  has_gpu = true;
  if (current != gpu) before_ = current;
}

GpuScope::~GpuScope() {
  if (before_ >= 0 && has_context(before_)) note(cudaSetDevice(before_));
}

UncapturedCalls::UncapturedCalls() noexcept {
  if (!capturing()) return;
  changed_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

UncapturedCalls::~UncapturedCalls() {
  if (changed_) note(cudaThreadExchangeStreamCaptureMode(&mode_));
}

}  // namespace shmap::cuda
