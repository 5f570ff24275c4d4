#include "core/base/unwinder.h"

#include <execinfo.h>

namespace shmap {

void open_unwinder() noexcept {
  // backtrace() uses the same handle of libgcc_s, and has no other effect.
  void* frame = nullptr;
  backtrace(&frame, 1);
}

}  // namespace shmap
