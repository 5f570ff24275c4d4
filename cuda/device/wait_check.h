// Checks that threads which wait for a GPU make now and then: whether the wait will ever end.
#pragma once

namespace shmap::cuda {

// Something besides its GPU on which enqueued work depends, as communicators do on peer processes.
class Watched {
 public:
  // Throws where enqueued work will never be done, for example because a peer process is lost. Any
  // thread.
  virtual void check_watched() = 0;

 protected:
  ~Watched() = default;

 private:
  friend void watch(Watched& watched) noexcept;
  friend void check_wait();
  Watched* next_ = nullptr;
};

// From now on check_wait() checks the object, which is never destroyed. Once for each object; any
// thread.
void watch(Watched& watched) noexcept;
void check_wait();

}  // namespace shmap::cuda
