#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_sim.h"

namespace shmap_sim {

thread_local ThreadState this_thread;

namespace {

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

void configure(Runtime& r) {
  const char* gpus = std::getenv("SHMAP_SIM_GPUS");
  r.driver = gpus != nullptr && *gpus != '\0'
                 ? static_cast<int>(number("SHMAP_SIM_DRIVER", CUDART_VERSION))
                 : 0;
  r.peer = number("SHMAP_SIM_PEER", 1) != 0;
  r.protect = number("SHMAP_SIM_PROTECT", 0) != 0;
  const char* graphs = std::getenv("SHMAP_SIM_GRAPHS");
  r.graphs_of_one_gpu = graphs != nullptr && std::strcmp(graphs, "one_gpu") == 0;
  r.random = number("SHMAP_SIM_SEED", 1) * 0x9e3779b97f4a7c15ULL | 1;
  const std::size_t count = number("SHMAP_SIM_GPUS", 0);
  for (std::size_t i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->peers.assign(count, false);
    device->legacy = std::make_shared<Stream>();
    device->legacy->device = static_cast<int>(i);
    device->legacy->legacy = true;
    device->legacy->id = r.next_id++;
    r.devices.push_back(std::move(device));
  }
  open_arenas(r, number("SHMAP_SIM_MEMORY", std::size_t{4} << 30));
}

}  // namespace

int most_shared_bytes() {
  static const auto bytes = static_cast<int>(number("SHMAP_SIM_SHARED", 101376));
  return bytes;
}

Runtime& runtime() {
  static Runtime* const r = [] {
    auto* made = new Runtime;
    configure(*made);
    return made;
  }();
  return *r;
}

cudaError_t enter(const char* function, unsigned flags, Runtime& r) {
  if (r.logging) r.calls.emplace_back(function);
  if (this_thread.in_callback && (flags & kNoDriver) == 0) return cudaErrorNotPermitted;
  if (!r.faults.empty()) {
    if (const cudaError_t error = fault_of_call(r, function); error != cudaSuccess) return error;
  }
  if ((flags & kNoDriver) != 0) return cudaSuccess;
  if (r.driver / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  if (r.devices.empty()) return cudaErrorNoDevice;
  const cudaError_t lost = r.devices[this_thread.device]->lost;
  if (lost != cudaSuccess && (flags & kEvenIfLost) == 0) return lost;
  if ((flags & (kEvenIfLost | kNoContext)) == 0)
    this_thread.has_context = r.devices[this_thread.device]->has_context = true;
  return (flags & kUnsafe) != 0 && !r.captures.empty() ? check_unsafe(r) : cudaSuccess;
}

cudaError_t leave(cudaError_t error) {
  if (error != cudaSuccess) this_thread.last_error = error;
  return error;
}

void complain(const std::string& text) { std::fprintf(stderr, "cuda_sim: %s\n", text.c_str()); }

void reset() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.progress.wait(lock, [&] { return r.running == 0; });
  for (auto& stream : r.active) stream->queue.clear();
  r.active.clear();
  r.streams.clear();
  r.events.clear();
  r.graphs.clear();
  r.execs.clear();
  r.captures.clear();
  r.faults.clear();
  r.kernel_faults.clear();
  r.calls.clear();
  r.executed.clear();
  r.logging = r.overrun = false;
  r.queued = 0;
  r.launches = 0;
  close_arenas(r);
  r.devices.clear();
  configure(r);
  this_thread = ThreadState{};
}

void set_seed(std::uint64_t seed) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.random = seed * 0x9e3779b97f4a7c15ULL | 1;
}

Counts counts() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  Counts result;
  for (const auto& device : r.devices) {
    result.allocations += device->arena.pieces.size();
    result.bytes += device->arena.used;
  }
  result.pinned = r.pinned.size();
  result.streams = r.streams.size();
  result.events = r.events.size();
  result.graphs = r.graphs.size();
  result.execs = r.execs.size();
  result.pending = r.queued;
  result.launches = r.launches;
  return result;
}

bool overrun_seen() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return r.overrun;
}

bool is_device_memory(const void* address) { return device_of_memory(address) >= 0; }

int device_of_memory(const void* address) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return device_at(r, address);
}

bool has_context(int device) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return r.devices[device]->has_context;
}

int device_of(cudaStream_t stream) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const Stream* s = stream_of(r, stream);
  return s == nullptr ? -1 : s->device;
}

}  // namespace shmap_sim
