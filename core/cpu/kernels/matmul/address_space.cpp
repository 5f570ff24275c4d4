#include "core/cpu/kernels/matmul/address_space.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <vector>

namespace shmap::cpu {
namespace {

bool limited(int resource) {
  rlimit limit{};
  return getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
         limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

bool address_space_is_limited() { return limited(RLIMIT_AS) || limited(RLIMIT_DATA); }

bool address_space_has_room(int pieces, std::size_t bytes) {
  std::vector<void*> taken;
  taken.reserve(static_cast<std::size_t>(pieces));
  while (taken.size() < static_cast<std::size_t>(pieces)) {
    void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) break;
    taken.push_back(p);
  }
  const bool all = taken.size() == static_cast<std::size_t>(pieces);
  for (void* p : taken) munmap(p, bytes);
  return all;
}

}  // namespace shmap::cpu
