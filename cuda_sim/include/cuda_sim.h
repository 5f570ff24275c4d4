// Functions of the software CUDA runtime beyond CUDA, for tests and for stand-ins of other
// libraries.
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
//   SHMAP_SIM_MEMORY  bytes of memory of each GPU (default 4 GiB)
//   SHMAP_SIM_SEED    of the order of all that CUDA leaves open (default 1)
//   SHMAP_SIM_PEER    0: no GPU can reach another's memory (default 1)
//   SHMAP_SIM_GRAPHS  one_gpu: a graph with work of several GPUs is refused when it is instantiated
//                     (cudaErrorNotSupported)
//   SHMAP_SIM_PROTECT 1: host code that touches device memory, and kernels that touch memory of a
//                     GPU that they have no access to, crash (slow; default 0)
// reset() does not wait: it removes all streams, events, graphs and allocations, and lost devices
// work again.
void reset();
void set_seed(std::uint64_t seed);

// --- work of stand-ins -----------------------------------------------------------------------

// Enqueues host work in a stream, as a kernel of that name; the work may access device memory. It
// runs when the stream reaches it, and becomes a graph node if the stream captures. It must not
// call the API. An exception in it fails the device, as a kernel's fault does.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work);
// Enqueues one piece of work in several streams, of one device or several: it starts after the
// earlier work of each of them, and their later work starts after it (a collective of local ranks).
cudaError_t enqueue_group(const std::vector<cudaStream_t>& streams, const char* name,
                          std::function<void()> work);
// As enqueue(), but the work starts only when may_run() returns true, for example when other
// processes have done their part. may_run is called repeatedly and must not call the API. Threads
// that wait for a device sleep a little between the calls. From the first such call on, a thread
// runs queued work, a few pieces at a time, even while no thread waits, because other processes
// wait for this process's part.
cudaError_t enqueue_when(cudaStream_t stream, const char* name, std::function<bool()> may_run,
                         std::function<void()> work);
int device_of(cudaStream_t stream);  // -1 if it is not a stream
bool is_device_memory(const void* address);
// The device to which the memory belongs, or -1 if it is not device memory.
int device_of_memory(const void* address);

// --- faults ----------------------------------------------------------------------------------

// The nth call from now (1: the next one) of that function returns the error once, without any
// other effect. Names of stand-ins are allowed if the stand-in calls injected().
void inject(const std::string& function, cudaError_t error, int nth = 1);
// The nth kernel from now whose name contains `name`, or the nth work of enqueue(), fails when it
// runs. Its device is lost from then on: each call for the device returns the error.
void inject_kernel_fault(const std::string& name, cudaError_t error = cudaErrorIllegalAddress,
                         int nth = 1);
void clear_faults();  // removes faults that have not happened yet
// For stand-ins: counts a call of the function, and returns the error to report, or cudaSuccess.
cudaError_t injected(const char* function);

// --- the log -----------------------------------------------------------------------------------

void record_calls(bool on);              // starts an empty log, or stops
std::vector<std::string> calls();        // "cudaMalloc 1024", in order
void log_call(const std::string& text);  // for stand-ins; nothing while the log is off
std::vector<std::string> executed();     // names of the work that ran since record_calls(true), in
                                         // order

// --- looking in --------------------------------------------------------------------------------

struct Counts {
  std::uint64_t allocations = 0;  // live, of device memory
  std::uint64_t bytes = 0;        // of these allocations
  std::uint64_t pinned = 0;       // live allocations of pinned host memory
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t graphs = 0;
  std::uint64_t execs = 0;
  std::uint64_t pending = 0;   // queued work
  std::uint64_t launches = 0;  // kernels run, ever
};
Counts counts();
// Whether this process has a context on that GPU, which takes hundreds of MB of a real one.
bool has_context(int device);
bool overrun_seen();  // whether the guard zone of a freed allocation was overwritten

}  // namespace shmap_sim
#pragma GCC visibility pop
