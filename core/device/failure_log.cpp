#include "core/device/failure_log.h"

#include <new>
#include <typeinfo>
#include <utility>

#include "shmap/error.h"

namespace shmap {
namespace {

template <class E>
std::exception_ptr with_note(const E& e, const std::string& note) {
  return std::make_exception_ptr(E(e.what() + note));
}

// A copy of the error, of the same class, with the note appended to its text.
std::exception_ptr annotate(const std::exception_ptr& error, const std::string& note) {
  try {
    std::rethrow_exception(error);
  } catch (const ValueError& e) {
    return with_note(e, note);
  } catch (const TypeError& e) {
    return with_note(e, note);
  } catch (const DeviceError& e) {
    return with_note(e, note);
  } catch (const OutOfMemory& e) {
    return with_note(e, note);
  } catch (const CollectiveError& e) {
    return with_note(e, note);
  } catch (const Error& e) {
    return typeid(e) == typeid(Error) ? with_note(e, note) : error;
  } catch (...) {
    return error;  // a user's exception type: left unchanged
  }
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
      error = annotate(error, note_);
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
  std::lock_guard lock(mutex_);
  std::erase_if(failures_, [](const Ref<Failure>& f) { return f->reported.load(); });
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
