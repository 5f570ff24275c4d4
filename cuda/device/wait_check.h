// Checks that threads which wait for a GPU make now and then: whether the wait will ever end.
#pragma once

namespace shmap::cuda {

// An object besides the GPU on which enqueued work depends, as communicators depend on peer
// processes.
class Watched {
 public:
  // Throws if enqueued work will never be done, for example because a peer process is lost. Any
  // thread.
  virtual void check_watched() = 0;

 protected:
  ~Watched() = default;

 private:
  friend void watch(Watched& watched) noexcept;
  friend void check_wait();
  Watched* next_ = nullptr;
};

// Makes check_wait() check the object, which is never destroyed, from now on. Called once for each
// object, by any thread.
void watch(Watched& watched) noexcept;
void check_wait();

}  // namespace shmap::cuda
