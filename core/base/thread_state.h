// What the layers below keep of each thread, in one variable: a library that may be loaded while
// the process runs asks the loader where its thread-local variables are, in some 13 instructions
// each time, so an operation asks once and hands the answer on.
#pragma once

namespace shmap::detail {

class CaptureMemory;  // core/device/plan_memory.h
struct CounterBlock;  // core/base/counters.h

struct ThreadState {
  const char* task = nullptr;        // the name of the task that runs on this thread
  void* capture = nullptr;           // the capture of this thread
  CaptureMemory* memory = nullptr;   // what it may allocate from while it captures
  CounterBlock* counters = nullptr;  // null until it first counts
  bool stops_devices = false;        // if it is the main thread: when it ends
};
// Of no particular TLS model: "initial-exec" would be quicker and would keep dlopen from loading
// the library.
extern constinit thread_local ThreadState thread_state;

}  // namespace shmap::detail
