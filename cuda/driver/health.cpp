#include "cuda/driver/health.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "cuda/driver/error.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

struct All {
  std::mutex mutex;
  std::vector<Health*> list;
};
All& all() {
  static auto* const healths = new All;  // never destroyed: arrays in static variables outlive it
  return *healths;
}

}  // namespace

Health::Health(Unfinished unfinished, const void* context)
    : unfinished_(unfinished), context_(context), failure_(make_ref<Failure>()) {
  std::lock_guard lock(all().mutex);
  all().list.push_back(this);
}

Health::~Health() {
  std::lock_guard lock(all().mutex);
  std::erase(all().list, this);
}

void Health::detach() noexcept {
  std::lock_guard lock(mutex_);
  context_ = nullptr;
}

void Health::check(const char* what) const {
  if (!poisoned()) return;
  try {
    std::rethrow_exception(failure_->error);
  } catch (const DeviceError& e) {
    failure_->reported.store(true, std::memory_order_relaxed);
    throw DeviceError(std::string(what) + ": " + e.what());
  } catch (const CollectiveError& e) {
    failure_->reported.store(true, std::memory_order_relaxed);
    throw CollectiveError(std::string(what) + ": " + e.what());
  }
}

void Health::poison(cudaError_t code, const char* where) noexcept {
  if (poisoned()) return;
  std::lock_guard lock(mutex_);
  if (poisoned()) return;
  try {
    std::string text = "the GPU was lost to this process: " + describe(code);
    if (where[0] != '\0') text += ", seen in " + std::string(where);
    if (context_ != nullptr) {
      const std::string tasks = unfinished_(context_);
      if (!tasks.empty()) text += "; not done by then, so one of them did it: " + tasks;
    }
    text +=
        ". Every later use of these devices fails so; work on the host goes on, and a new process "
        "has the GPU again. Run under compute-sanitizer, which finds a kernel's invalid access, or "
        "set CUDA_LAUNCH_BLOCKING=1 so that the failing launch reports it.";
    failure_->error = std::make_exception_ptr(DeviceError(text));
  } catch (...) {
    failure_->error = std::current_exception();  // no memory for the text
  }
  poisoned_.store(true, std::memory_order_release);
}

void Health::lost(const std::exception_ptr& error) noexcept {
  std::lock_guard lock(all().mutex);
  for (Health* health : all().list) {
    std::lock_guard own(health->mutex_);
    if (health->poisoned()) continue;
    health->failure_->error = error;
    health->poisoned_.store(true, std::memory_order_release);
  }
}

void Health::lost(cudaError_t code, const char* where) noexcept {
  std::lock_guard lock(all().mutex);
  for (Health* health : all().list) health->poison(code, where);
}

}  // namespace shmap::cuda
