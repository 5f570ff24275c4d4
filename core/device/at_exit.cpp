#include "core/device/at_exit.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "core/base/thread_state.h"
#include "core/device/runtime.h"

namespace shmap::detail {

struct BeforeStopList {
  static BeforeStopList& get() {
    static constinit BeforeStopList list;  // read at exit: its destructor is trivial
    return list;
  }
  void add(BeforeStop& object) noexcept {
    std::lock_guard lock(mutex_);
    last_ = (last_ == nullptr ? first_ : last_->next_) = &object;
  }
  // The object after `before`, or the first one; null where there is none.
  BeforeStop* after(const BeforeStop* before) noexcept {
    std::lock_guard lock(mutex_);
    return before == nullptr ? first_ : before->next_;
  }

 private:
  std::mutex mutex_;
  BeforeStop *first_ = nullptr, *last_ = nullptr;
};

namespace {

// Does nothing in a forked child, which has only one thread.
void stop_backends() noexcept {
  if (Runtime* r = the_runtime.load(std::memory_order_acquire)) {
    BeforeStopList& list = BeforeStopList::get();
    for (BeforeStop* b = nullptr; (b = list.after(b)) != nullptr;) b->before_stop();
    for (const auto& backend : r->backends()) backend->stop();
  }
}

}  // namespace

void stop_first_at_exit() noexcept { std::atexit(stop_backends); }

void call_before_stop(BeforeStop& object) noexcept { BeforeStopList::get().add(object); }

void stop_when_main_ends() noexcept {
  // exit() destroys the calling thread's thread_local variables before it calls any handler.
  struct End {
    ~End() {
      if (getpid() == gettid()) stop_backends();
    }
  };
  static thread_local End end;
  (void)&end;  // registers the destructor of `end`
  thread_state.stops_devices = true;
}

}  // namespace shmap::detail
