#include "tests/support/counted_blocks.h"

#include <atomic>

namespace {
std::atomic<std::int64_t> blocks{0};
}

// The compiler calls this at the start of each basic block (-fsanitize-coverage=trace-pc).
extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() { blocks.fetch_add(1, std::memory_order_relaxed); }

namespace shmap::test {

std::int64_t counted_blocks() { return blocks.load(std::memory_order_relaxed); }

}  // namespace shmap::test
