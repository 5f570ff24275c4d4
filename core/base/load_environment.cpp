#include "core/base/load_environment.h"

#include <cstdlib>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define SHMAP_ONE_THREAD (__libc_single_threaded != 0)
#else
#define SHMAP_ONE_THREAD false  // unknown: do not change the environment
#endif

namespace shmap::env {

void set_at_load(const char* name, const char* value) noexcept {
  if (SHMAP_ONE_THREAD) setenv(name, value, /*overwrite=*/0);
}

}  // namespace shmap::env
