// LaunchThread: a thread that launches the graphs of one GPU, so that those of several GPUs are
// launched at once.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace shmap::cuda {

// Given work by one thread at a time: they hold the backend's submit mutex.
class LaunchThread {
 public:
  using Work = cudaError_t (*)(void* args);  // with the GPU current; throws nothing

  explicit LaunchThread(int gpu);  // throws std::system_error
  ~LaunchThread();                 // stops; in a forked child, which has no such thread, nothing
  LaunchThread(const LaunchThread&) = delete;
  LaunchThread& operator=(const LaunchThread&) = delete;

  // Has it call work(args), which stay valid until wait() returns. False where it was stopped:
  // then it calls nothing.
  bool start(Work work, void* args) noexcept;
  // Blocks until the work that was started is done: what it returned.
  cudaError_t wait() noexcept;
  // Waits for its work, and joins it. Any thread; again: nothing.
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
