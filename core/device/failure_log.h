// FailureLog: the errors of tasks, kept until somebody has seen them.
#pragma once
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/intrusive.h"

namespace shmap {

// An error, shared by the task that threw it and all that inherited it.
struct Failure : RefCounted {
  std::exception_ptr error;
  std::atomic<bool> reported{false};
};

// May be used by several threads at once.
class FailureLog {
 public:
  // The note goes at the end of each error's text.
  explicit FailureLog(std::string note);
  // The failure of a task that threw `error`. Where there is no memory left to keep it in, the one
  // that says so, which was made beforehand.
  Ref<Failure> add(std::exception_ptr error) noexcept;
  // Rethrows the first that nobody was told of, and forgets them all.
  void rethrow_unreported();

 private:
  static constexpr std::size_t kMaxKept = 64;
  const std::string note_;
  Ref<Failure> out_of_memory_;
  std::mutex mutex_;
  std::vector<Ref<Failure>> failures_;  // with room for all of them
};

}  // namespace shmap
