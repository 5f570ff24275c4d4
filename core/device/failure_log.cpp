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

// The same error, of the same kind, with the note at its end.
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
    return error;  // a type of the user's: left as it is
  }
}

}  // namespace

Ref<Failure> FailureLog::add(std::exception_ptr error) noexcept {
  constexpr std::size_t kMaxKept = 64;
  Ref<Failure> failure;
  try {
    if (!note_.empty()) error = annotate(error, note_);
    failure = make_ref<Failure>();
    failure->error = std::move(error);
    std::lock_guard lock(mutex_);
    std::erase_if(failures_, [](const Ref<Failure>& f) { return f->reported.load(); });
    if (failures_.size() < kMaxKept) failures_.push_back(failure);
  } catch (const std::bad_alloc&) {
    // Without memory for the record of it, the error is that there is no memory.
    static Failure* const out_of_memory = [] {
      auto* f = new Failure;
      f->error = std::make_exception_ptr(OutOfMemory("no memory left to keep a task's error in"));
      f->add_ref();
      return f;
    }();
    if (failure.get() == nullptr) failure = Ref<Failure>(out_of_memory);
  }
  return failure;
}

void FailureLog::rethrow_unreported() {
  std::vector<Ref<Failure>> failures;
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
