#include "bench/support/peak_memory.h"

#include <cstdint>
#include <cstdio>

#include "core/device/backend.h"
#include "core/device/runtime.h"

namespace shmap::bench {

int print_peak_memory(const std::string& what, const std::function<void()>& call,
                      const std::function<std::string()>& check) {
  const auto spaces = runtime().backend().spaces();
  for (int k = 0; k < 6; ++k) {
    if (k == 3)
      for (MemorySpace* space : spaces) space->reset_peak();
    call();
  }
  std::int64_t peak = 0;
  for (MemorySpace* space : spaces) peak += space->peak_bytes();
  const std::string fault = check();
  if (!fault.empty()) std::printf("#wrong %s: %s\n", what.c_str(), fault.c_str());
  std::printf("%lld\n", static_cast<long long>(peak));
  return fault.empty() ? 0 : 1;
}

}  // namespace shmap::bench
