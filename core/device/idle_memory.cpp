#include "core/device/idle_memory.h"

#include <mutex>
#include <unordered_set>

#include "core/base/no_user_code.h"

namespace shmap {

namespace {

struct Owners {
  static Owners& get() {
    static auto& owners = *new Owners;  // never destroyed: plans may live until the process ends
    return owners;
  }
  std::mutex mutex;
  std::unordered_set<IdleMemory*> all;
};

}  // namespace

void IdleMemory::register_idle() {
  Owners& owners = Owners::get();
  const std::lock_guard lock(owners.mutex);
  owners.all.insert(this);
}

void IdleMemory::forget_idle() noexcept {
  Owners& owners = Owners::get();
  const std::lock_guard lock(owners.mutex);
  owners.all.erase(this);
}

bool give_up_idle_memory() noexcept {
  Owners& owners = Owners::get();
  const NoUserCode locked;
  const std::lock_guard lock(owners.mutex);
  bool any = false;
  for (IdleMemory* owner : owners.all) any = owner->give_up() || any;
  return any;
}

}  // namespace shmap
