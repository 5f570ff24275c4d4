// What a thread keeps from one call to the next.
#pragma once
#include <utility>

namespace shmap {

// The calling thread's T: made at its first use, destroyed when the thread ends. Other than a
// thread_local T it may be used after that too, by the destructors of static variables at exit; it
// is then made anew and stays. Different Tags have different ones.
template <class T, class Tag = T>
T& kept_by_thread() {
  static constinit thread_local T* kept = nullptr;
  if (kept == nullptr) [[unlikely]] {
    struct End {
      ~End() { delete std::exchange(kept, nullptr); }
    };
    static thread_local End end;
    (void)&end;  // which registers its destructor
    kept = new T;
  }
  return *kept;
}

}  // namespace shmap
