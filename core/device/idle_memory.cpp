#include "core/device/idle_memory.h"

#include <mutex>

#include "core/base/no_user_code.h"

namespace shmap {

namespace {

// Nothing is allocated here: there may be no memory.
constinit std::mutex owners;
constinit IdleMemory* first = nullptr;

}  // namespace

void IdleMemory::register_idle() noexcept {
  const std::lock_guard lock(owners);
  after_ = first;
  if (first != nullptr) first->before_ = this;
  first = this;
}

void IdleMemory::forget_idle() noexcept {
  const std::lock_guard lock(owners);
  (before_ != nullptr ? before_->after_ : first) = after_;
  if (after_ != nullptr) after_->before_ = before_;
}

bool give_up_idle_memory() noexcept {
  const NoUserCode locked;
  const std::lock_guard lock(owners);
  bool any = false;
  for (IdleMemory* owner = first; owner != nullptr; owner = owner->after_)
    any = owner->give_up() || any;
  return any;
}

}  // namespace shmap
