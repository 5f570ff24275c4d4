// LaunchThread: a thread that launches the graphs of one GPU, so that the graphs of several GPUs
// are launched at the same time.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace shmap::cuda {

// One thread at a time gives it work: the holder of the backend's submit mutex.
class LaunchThread {
 public:
  using Work = cudaError_t (*)(void* args);  // called with the GPU current; must not throw

  explicit LaunchThread(int gpu);  // throws std::system_error
  ~LaunchThread();                 // stops the thread; does nothing in a forked child, which does
                                   // not have the thread
  LaunchThread(const LaunchThread&) = delete;
  LaunchThread& operator=(const LaunchThread&) = delete;

  // Makes the thread call work(args); args must stay valid until wait() returns. False where the
  // thread was stopped; nothing is called then.
  bool start(Work work, void* args) noexcept;
  // Blocks until the started work is done, and returns its result.
  cudaError_t wait() noexcept;
  // Waits for the thread's work, and joins the thread. Idempotent. Any thread.
  void stop() noexcept;

 private:
  enum State : std::uint32_t { idle, given, done, stopping };
  void loop();

  const int gpu_;
  std::atomic<std::uint32_t> state_{idle};
  std::atomic<bool> joined_{false};
  Work work_ = nullptr;
  void* args_ = nullptr;
  cudaError_t result_ = cudaSuccess;
  std::thread thread_;
};

}  // namespace shmap::cuda
