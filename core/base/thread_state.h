// ThreadState: what the lower floors keep for each thread and need often, in one variable. In a
// library that may be loaded while the process runs, each access to a thread-local variable takes
// some 13 instructions, so an operation looks the variable up once and passes a reference to it on.
#pragma once

namespace shmap::detail {

class CaptureMemory;  // core/device/plan_memory.h
struct CounterBlock;  // core/base/counters.h

struct ThreadState {
  const char* task = nullptr;        // name of the task that this thread runs; null: none
  void* capture = nullptr;           // the open capture of this thread; null: none
  CaptureMemory* memory = nullptr;   // allocator of this thread's captures; null: allocating throws
  CounterBlock* counters = nullptr;  // null until the thread first counts
  bool submits = false;              // this thread holds a submit mutex
  bool stops_devices = false;        // stop_when_main_ends() was called on this thread
};
// No TLS model is given: "initial-exec" would be faster, but dlopen could then fail to load the
// library.
extern constinit thread_local ThreadState thread_state;

}  // namespace shmap::detail
