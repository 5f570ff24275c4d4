#include "core/base/thread_state.h"

namespace shmap::detail {
constinit thread_local ThreadState thread_state;
}  // namespace shmap::detail
