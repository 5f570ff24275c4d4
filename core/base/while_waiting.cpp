#include "core/base/while_waiting.h"

namespace shmap::detail {

constinit std::atomic<LookAgain (*)() noexcept> while_waiting{nullptr};
constinit std::atomic<void (*)(Looking) noexcept> looking_changes{nullptr};

}  // namespace shmap::detail
