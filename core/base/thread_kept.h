// Objects that a thread keeps from one call to the next.
#pragma once
#include <utility>

namespace shmap {

// The calling thread's T, which is made at its first use and destroyed when the thread ends. Unlike
// a thread_local T, the object may still be used after the end of its thread, by destructors of
// static variables at exit: it is then made again and never destroyed. Each Tag has its own object.
template <class T, class Tag = T>
T& kept_by_thread() {
  static constinit thread_local T* kept = nullptr;
  if (kept == nullptr) [[unlikely]] {
    struct End {
      ~End() { delete std::exchange(kept, nullptr); }
    };
    static thread_local End end;
    (void)&end;  // registers the destructor of `end`
    kept = new T;
  }
  return *kept;
}

}  // namespace shmap
