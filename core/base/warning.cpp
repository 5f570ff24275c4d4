#include "core/base/warning.h"

#include <atomic>
#include <cstdio>

namespace shmap {
namespace {
constinit std::atomic<WarningHandler> handler{nullptr};
}

void warn(std::string_view message) noexcept {
  if (WarningHandler h = handler.load(std::memory_order_acquire); h != nullptr) {
    h(message);
  } else {
    std::fprintf(stderr, "shmap: %.*s\n", static_cast<int>(message.size()), message.data());
  }
}

WarningHandler set_warning_handler(WarningHandler h) noexcept {
  return handler.exchange(h, std::memory_order_acq_rel);
}

}  // namespace shmap
