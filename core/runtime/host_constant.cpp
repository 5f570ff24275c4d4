#include "core/runtime/host_constant.h"

#include <mutex>
#include <utility>
#include <vector>

#include "core/runtime/device_ops.h"
#include "core/runtime/launch.h"

namespace shmap {

void write_constant(Backend& backend, const LocalDevice& device, Buffer& to, const void* from,
                    std::int64_t bytes) {
  if (bytes == 0) return;
  // Where constants must be copied from the host, a copy of a few bytes is enqueued in order with
  // the device's other work, so that no thread waits for it.
  constexpr std::int64_t kFew = 4096;
  if (!capturing() && (backend.host_addressable() || bytes > kFew)) {
    return device_ops(backend).host_to_device(to.data(), from, bytes);
  }
  const auto* first = static_cast<const std::byte*>(from);
  std::vector<std::byte> kept(first, first + bytes);
  Buffer* const writes[] = {&to};
  std::lock_guard lock(backend.submit_mutex());
  launch({device.compute, "constant", 0, bytes}, {}, writes,
         [kept = std::move(kept), data = to.data(), ops = &device_ops(backend)](int, int,
                                                                                void* native) {
           ops->copy(data, kept.data(), static_cast<std::int64_t>(kept.size()), native);
         });
}

}  // namespace shmap
