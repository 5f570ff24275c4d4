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
  explicit FailureLog(std::string note) : note_(std::move(note)) {}
  // The failure of a task that threw `error`.
  Ref<Failure> add(std::exception_ptr error) noexcept;
  // Rethrows the first that nobody was told of, and forgets them all.
  void rethrow_unreported();

 private:
  const std::string note_;
  std::mutex mutex_;
  std::vector<Ref<Failure>> failures_;
};

}  // namespace shmap
