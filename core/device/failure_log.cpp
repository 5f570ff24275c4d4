#include "core/device/failure_log.h"

#include <array>
#include <new>
#include <typeinfo>
#include <utility>

#include "shmap/error.h"

namespace shmap {
namespace {

// Appends the note to the text of an error of class E; false where the error is of another class.
template <class E>
bool annotate_as(std::exception_ptr& error, const std::string& note) {
  try {
    std::rethrow_exception(error);
  } catch (const E& e) {
    if (typeid(e) != typeid(E)) return false;
    error = std::make_exception_ptr(E(e.what() + note));
    return true;
  } catch (...) {
    return false;
  }
}

// Appends the note to the text of an error of one of the library's classes. Errors of users'
// classes, also of those derived from the library's, stay as they are.
void annotate(std::exception_ptr& error, const std::string& note) {
  [[maybe_unused]] const bool done =
      annotate_as<ValueError>(error, note) || annotate_as<TypeError>(error, note) ||
      annotate_as<DeviceError>(error, note) || annotate_as<OutOfMemory>(error, note) ||
      annotate_as<CollectiveError>(error, note) || annotate_as<Error>(error, note);
}

}  // namespace

FailureLog::FailureLog(std::string note)
    : note_(std::move(note)), out_of_memory_(make_ref<Failure>()) {
  out_of_memory_->error =
      std::make_exception_ptr(OutOfMemory("no memory left to keep a task's error in"));
  failures_.reserve(kMaxKept);
}

Ref<Failure> FailureLog::add(std::exception_ptr error) noexcept {
  if (!note_.empty()) {
    try {
      annotate(error, note_);
    } catch (const std::bad_alloc&) {  // then the error stays without the note
    }
  }
  Ref<Failure> failure;
  try {
    failure = make_ref<Failure>();
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  }
  failure->error = std::move(error);
  // An exception may own arrays, whose destructors must not run under the lock.
  std::array<Ref<Failure>, kMaxKept> dropped;
  std::lock_guard lock(mutex_);
  auto kept = failures_.begin();
  std::size_t gone = 0;
  for (Ref<Failure>& f : failures_) {
    if (f->reported.load())
      dropped[gone++] = std::move(f);
    else
      std::swap(*kept++, f);
  }
  failures_.erase(kept, failures_.end());
  if (failures_.size() < kMaxKept) failures_.push_back(failure);
  return failure;
}

void FailureLog::rethrow_unreported() {
  std::vector<Ref<Failure>> failures;
  failures.reserve(kMaxKept);
  {
    std::lock_guard lock(mutex_);
    failures.swap(failures_);
  }
  std::exception_ptr first;
  for (const Ref<Failure>& f : failures) {
    if (!f->reported.exchange(true) && first == nullptr) first = f->error;
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace shmap
