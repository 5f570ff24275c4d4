#include "core/cpu/device/backend.h"
#include "tests/device/conformance/failures.h"
#include "tests/device/conformance/graphs.h"
#include "tests/device/conformance/load.h"
#include "tests/device/conformance/memory.h"
#include "tests/device/conformance/streams.h"

namespace shmap::testing {
namespace {

struct CpuOps {
  static void mix(void*, std::int32_t* x, std::int32_t v) {
    *x = static_cast<std::int32_t>(static_cast<std::uint32_t>(*x) * 31u +
                                   static_cast<std::uint32_t>(v));
  }
  static void add(void* native, std::int32_t* x, const std::int32_t* y) { mix(native, x, *y); }
  static void copy(void*, std::int32_t* x, const std::int32_t* y) { *x = *y; }
  static void upload(std::int32_t* x, std::int32_t v) { *x = v; }
  static std::int32_t download(const std::int32_t* x) { return *x; }
};

template <cpu::Mode kMode, std::uint64_t kSeed = 0, int kWorkers = 2>
struct Cpu : CpuOps {
  static std::unique_ptr<Backend> make(const std::string& devices, std::int64_t memory_limit) {
    cpu::ExecutorOptions options;
    options.mode = kMode;
    options.seed = kSeed;
    options.workers = kWorkers;
    return std::make_unique<cpu::CpuBackend>(DeviceSpec::parse("cpu:" + devices), 0, 0, options,
                                             memory_limit);
  }
};

// Each executor runs each suite.
#define INSTANTIATE(name, ...)                                    \
  using name = ::testing::Types<__VA_ARGS__>;                     \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, StreamConformance, name);  \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, FailureConformance, name); \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, GraphConformance, name);   \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, MemoryConformance, name);  \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, LoadConformance, name)

INSTANTIATE(CpuInline, Cpu<cpu::Mode::inline_>);
INSTANTIATE(CpuAsync, Cpu<cpu::Mode::async>);
INSTANTIATE(CpuAsyncOneWorker, Cpu<cpu::Mode::async, 0, 1>);
INSTANTIATE(CpuAsyncSevenWorkers, Cpu<cpu::Mode::async, 0, 7>);
INSTANTIATE(CpuSeeded, Cpu<cpu::Mode::seeded, 0>, Cpu<cpu::Mode::seeded, 1>,
            Cpu<cpu::Mode::seeded, 2>, Cpu<cpu::Mode::seeded, 3>);

#undef INSTANTIATE

}  // namespace
}  // namespace shmap::testing
