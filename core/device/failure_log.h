// FailureLog: the errors of tasks, kept until they have been reported.
#pragma once
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/intrusive.h"

namespace shmap {

// An error, shared by the task that threw it and all tasks that failed because of it.
struct Failure : RefCounted {
  std::exception_ptr error;
  std::atomic<bool> reported{false};
};

// Thread-safe.
class FailureLog {
 public:
  // `note` is appended to the text of each error that is of a class of the library itself.
  explicit FailureLog(std::string note);
  // Returns the failure of a task that threw `error`, and keeps it for rethrow_unreported() unless
  // kMaxKept unreported failures are kept already. If there is no memory to store the error,
  // returns a failure that says so and was allocated in advance.
  Ref<Failure> add(std::exception_ptr error) noexcept;
  // Rethrows the first failure that has not been reported, if there is one, and forgets all
  // failures.
  void rethrow_unreported();

 private:
  static constexpr std::size_t kMaxKept = 64;
  const std::string note_;
  Ref<Failure> out_of_memory_;
  std::mutex mutex_;
  std::vector<Ref<Failure>> failures_;  // reserved for kMaxKept of them
};

}  // namespace shmap
