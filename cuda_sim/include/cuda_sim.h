// What the software CUDA runtime offers beyond CUDA: to tests, and to stand-ins of other libraries.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

#pragma GCC visibility push(default)
namespace shmap_sim {

// The environment is read at the first call of the API, and again at each reset():
//   SHMAP_SIM_GPUS    number of GPUs; unset: there is no driver; 0: a driver without a device
//   SHMAP_SIM_DRIVER  version of the driver, 11080 is 11.8 (default: that of the runtime)
//   SHMAP_SIM_MEMORY  bytes of memory of each (default 4 GiB)
//   SHMAP_SIM_SEED    of the order of all that CUDA leaves open (default 1)
//   SHMAP_SIM_PEER    0: no GPU can reach another's memory (default 1)
//   SHMAP_SIM_GRAPHS  one_gpu: a graph with work of several GPUs is refused when it is instantiated
//                     (cudaErrorNotSupported)
//   SHMAP_SIM_PROTECT 1: host code that touches device memory, and kernels that touch memory of a
//                     GPU that they have no access to, crash (slow; default 0)
// reset() waits for nothing: all streams, events, graphs and allocations are gone, also poison.
void reset();
void set_seed(std::uint64_t seed);

// --- work of stand-ins -----------------------------------------------------------------------

// Puts host work that may touch device memory in a stream, as a kernel of that name: it runs when
// the stream comes to it, and becomes a graph node where the stream captures. It must not call the
// API. An exception fails the device as a kernel's fault would.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work);
// One piece of work in several streams at once, of one device or several: it starts after the
// earlier work of each, and the later work of each comes after it (a collective of local ranks).
cudaError_t enqueue_group(const std::vector<cudaStream_t>& streams, const char* name,
                          std::function<void()> work);
// enqueue() of work whose turn comes only when may_run() says so, as it does when other processes
// have done their share: it is asked again and again, and must not call the API. Who waits for a
// device sleeps a little meanwhile. From the first such call on a thread runs what is queued, a few
// pieces at a time, also while nobody waits: others wait for this process's share.
cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> may_run,
                         std::function<void()> work);
int device_of(cudaStream_t stream);  // -1 where it is no stream
bool is_device_memory(const void* address);
// The device whose memory it is; -1 where it is no device's.
int device_of_memory(const void* address);

// --- faults ----------------------------------------------------------------------------------

// The nth call from now (1 is the next one) of that function returns the error, once, and does
// nothing else. Names of stand-ins work too, where they ask injected().
void inject(const std::string& function, cudaError_t error, int nth = 1);
// The nth kernel from now whose name contains `name`, or the nth work of enqueue(), fails when it
// runs. Its device is lost from then on: each call for it returns the error.
void inject_kernel_fault(const std::string& name, cudaError_t error = cudaErrorIllegalAddress,
                         int nth = 1);
void clear_faults();  // those not met yet
// For stand-ins: counts a call of the function; the error to return, or cudaSuccess.
cudaError_t injected(const char* function);

// --- the log -----------------------------------------------------------------------------------

void record_calls(bool on);              // starts an empty log, or stops
std::vector<std::string> calls();        // "cudaMalloc 1024", in order
void log_call(const std::string& text);  // for stand-ins; nothing while the log is off
std::vector<std::string> executed();     // names of what ran since record_calls(true), in order

// --- looking in --------------------------------------------------------------------------------

struct Counts {
  std::uint64_t allocations = 0;  // live, of device memory
  std::uint64_t bytes = 0;        // of them
  std::uint64_t pinned = 0;       // live allocations of pinned host memory
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t graphs = 0;
  std::uint64_t execs = 0;
  std::uint64_t pending = 0;   // queued work
  std::uint64_t launches = 0;  // kernels run, ever
};
Counts counts();
bool overrun_seen();  // an allocation was freed whose guard zone had been written to

}  // namespace shmap_sim
#pragma GCC visibility pop
