#include "core/base/unwinder.h"

#include <execinfo.h>

namespace shmap {

void open_unwinder() noexcept {
  // backtrace() opens libgcc_s through the same handle, and has no other effect.
  void* frame = nullptr;
  backtrace(&frame, 1);
}

}  // namespace shmap
