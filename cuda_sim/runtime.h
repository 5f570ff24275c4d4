// Runtime: the whole state of the simulated driver, guarded by one mutex, and the common code of
// each API call.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture.h"
#include "cuda_runtime_api.h"
#include "op.h"
#include "sim_kernel.h"

namespace shmap_sim {

// The device memory of one GPU: pieces of one reserved range.
struct Arena {
  char* base = nullptr;
  std::size_t size = 0;      // reserved
  std::size_t capacity = 0;  // of the GPU
  std::size_t used = 0;
  std::map<std::size_t, std::size_t> free;  // offset -> bytes
  struct Piece {
    std::size_t asked = 0;  // bytes that the caller asked for; a guard zone follows
    std::size_t taken = 0;
  };
  std::map<std::size_t, Piece> pieces;  // by offset

  bool holds(const void* p) const {
    return base <= static_cast<const char*>(p) && static_cast<const char*>(p) < base + size;
  }
};

struct Device {
  Arena arena;
  std::shared_ptr<Stream> legacy;
  cudaError_t lost = cudaSuccess;  // sticky
  bool has_context = false;        // some call has created one there
  std::vector<bool> peers;         // devices whose memory it may access
};

struct Fault {
  std::string name;
  cudaError_t error;
  int left;  // number of calls until the fault happens
};

struct Runtime {
  std::mutex mutex;
  std::condition_variable progress;

  // Settings.
  int driver = 0;  // version, as in CUDART_VERSION; 0: there is no driver
  bool peer = true;
  bool protect = false;
  bool graphs_of_one_gpu = false;  // graphs of several GPUs cannot be instantiated
  std::uint64_t random = 1;
  std::vector<std::unique_ptr<Device>> devices;

  // Handles. The address of the object is the handle.
  std::unordered_map<const void*, std::shared_ptr<Stream>> streams;
  std::unordered_map<const void*, std::shared_ptr<Event>> events;
  std::unordered_map<const void*, std::shared_ptr<Graph>> graphs;
  std::unordered_map<const void*, std::shared_ptr<Exec>> execs;
  std::map<const char*, std::size_t> pinned;      // host memory whose copies need no staging
  std::map<const char*, std::size_t> registered;  // likewise: memory that the caller owns
  std::unordered_map<const void*, const KernelType*> kernels;
  // By device and kernel: the bytes of dynamic shared memory that cudaFuncSetAttribute allowed.
  std::map<std::pair<int, const void*>, std::size_t> most_shared;
  std::uint64_t next_id = 1;

  // The scheduler.
  std::vector<std::shared_ptr<Stream>> active;  // with queued work
  std::size_t queued = 0;
  bool executing = false;  // a thread runs work that may touch device memory
  int running = 0;         // threads that run anything
  int exposed = 0;         // number of users that need device memory unprotected
  std::uint64_t launches = 0;

  std::vector<std::shared_ptr<Capture>> captures;  // under way

  // Faults and the log.
  std::vector<Fault> faults;
  std::vector<Fault> kernel_faults;
  bool logging = false;
  std::vector<std::string> calls;
  std::vector<std::string> executed;
  bool overrun = false;

  std::uint64_t draw() {  // xorshift64*
    random ^= random >> 12;
    random ^= random << 25;
    random ^= random >> 27;
    return random * 0x2545F4914F6CDD1DULL;
  }
};

using Lock = std::unique_lock<std::mutex>;

Runtime& runtime();  // made at the first call, from the environment; never destroyed

// Bytes of dynamic shared memory for a block of a kernel that has asked for so much:
// SHMAP_SIM_SHARED or, by default, the least of GPUs from sm_80 on (of sm_86, sm_89 and sm_120), so
// that each kernel is seen to fit on all of them.
int most_shared_bytes();

// State of one host thread.
struct ThreadState {
  int device = 0;
  bool has_context = false;  // some call has given it one: cudaSetDevice, or one that needs it
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool in_callback = false;  // inside a host function or a stand-in's work
};
extern thread_local ThreadState this_thread;

// --- errors and faults (errors.cpp, faults.cpp) ---
cudaError_t fault_of_call(Runtime& r, const char* function);
// The error with which work of that name should fail now.
cudaError_t fault_of_work(Runtime& r, const std::string& name);
void complain(const std::string& text);  // on stderr

// --- scheduler.cpp ---
using Ops = std::vector<std::shared_ptr<Op>>;
std::shared_ptr<Op> push(Runtime& r, Stream& stream, std::shared_ptr<const Work> work,
                         Ops waits = {});
void wait_for(Runtime& r, Lock& lock, const Ops& ops);
void poll(Runtime& r, Lock& lock);           // runs a few pieces of work, or none
void drain_if_full(Runtime& r, Lock& lock);  // bounds the queues
bool is_done(const Ops& ops);
void run_in_background();                   // makes a separate thread run work from now on
Ops pending(const Runtime& r, int device);  // the last work of each of its streams

// --- capture.cpp ---
// Adds work to a stream, or to its capture.
cudaError_t submit(Runtime& r, Stream& stream, Work work, Ops waits = {});
void invalidate(Capture& capture);
// The error of a call that might break a capture; invalidates the captures that it breaks.
cudaError_t check_unsafe(Runtime& r);
// For calls that wait for, or query, a whole device (-1: any device).
cudaError_t check_wide(Runtime& r, int device);
// Called before work is added to a stream that does not itself capture.
cudaError_t check_implicit(Runtime& r, Stream& stream);

// --- handles (streams.cpp) ---
Stream* stream_of(Runtime& r, cudaStream_t handle);  // null: not valid; handle 0: the default
                                                     // stream
inline cudaStream_t handle_of(const Stream* s) {
  return reinterpret_cast<cudaStream_t>(const_cast<Stream*>(s));
}

// --- launch.cpp, names.cpp ---
// kernel null: a kernel that was launched before. name null: looked up.
cudaError_t enqueue_kernel(Runtime& r, Lock& lock, const cudaLaunchConfig_t& config,
                           const void* function, const KernelType* type, void** args,
                           const char* name);
// The same without a stream: the work, in `work`. `config.stream` is not read.
cudaError_t make_kernel(Runtime& r, const cudaLaunchConfig_t& config, int device,
                        const void* function, const KernelType* type, void** args, const char* name,
                        Work& work);
// The source name of a function, from the program's symbol tables; "kernel@0x..." if it has none.
std::string name_of_function(const void* function);

// --- memory.cpp ---
void open_arenas(Runtime& r, std::size_t bytes);
void close_arenas(Runtime& r);
int device_at(const Runtime& r, const void* p);  // -1: none
// True where [p, p + bytes) lies within one allocation of that device.
bool within_allocation(const Runtime& r, int device, const void* p, std::size_t bytes);
bool is_pinned(const Runtime& r, const void* p);
// Called around work of a device (-1: of all), if device memory is protected from the host.
void expose_memory(Runtime& r, int device);
void hide_memory(Runtime& r);

// --- the frame of a call ---
enum : unsigned {
  kNoDriver = 1,    // works without a driver, and on a lost device
  kUnsafe = 2,      // must not happen while certain captures are under way
  kEvenIfLost = 4,  // works on a lost device; creates no context
  kNoContext = 8    // creates no context for the thread
};

// Counts the call, applies injected faults, fails on a lost device; then calls body(runtime, lock).
cudaError_t enter(const char* function, unsigned flags, Runtime& r);
cudaError_t leave(cudaError_t error);

template <class Body>
cudaError_t api(const char* function, unsigned flags, Body&& body) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  cudaError_t error = enter(function, flags, r);
  if (error == cudaSuccess) error = body(r, lock);
  return leave(error);
}

}  // namespace shmap_sim
