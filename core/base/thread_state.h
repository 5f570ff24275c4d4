// The state of each thread for the lower floors, in one variable: in a library that may be loaded
// while the process runs, each access to a thread-local variable takes some 13 instructions, so an
// operation looks the variable up once and passes it on.
#pragma once

namespace shmap::detail {

class CaptureMemory;  // core/device/plan_memory.h
struct CounterBlock;  // core/base/counters.h

struct ThreadState {
  const char* task = nullptr;        // name of the task that this thread runs
  void* capture = nullptr;           // the capture of this thread
  CaptureMemory* memory = nullptr;   // memory for allocations while it captures
  CounterBlock* counters = nullptr;  // null until the thread first counts
  bool stops_devices = false;        // the main thread: stops the devices when it ends
};
// No TLS model is given: "initial-exec" would be faster, but dlopen could then fail to load the
// library.
extern constinit thread_local ThreadState thread_state;

}  // namespace shmap::detail
