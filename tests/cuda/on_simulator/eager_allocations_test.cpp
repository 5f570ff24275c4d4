// What eager operations on a GPU whose stream still runs take from the host: no more memory than if
// nothing is pending, since the task is called at enqueue; and few calls of the driver.
#include <cuda_sim.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace shmap {
namespace {

constexpr int kOps = 64;

// The allocations of kOps operations, each pending after the one before or each awaited. The
// simulator's own allocations are counted in both cases.
std::int64_t allocated(bool pending) {
  Array x = full({256}, 1.f).block_until_ready();
  const std::int64_t before = allocations.load();
  std::int64_t of_waits = 0;
  for (int i = 0; i < kOps; ++i) {
    x = x * 0.5f;
    if (pending) continue;
    const std::int64_t wait = allocations.load();
    x.block_until_ready();
    of_waits += allocations.load() - wait;
  }
  const std::int64_t all = allocations.load() - before - of_waits;
  EXPECT_EQ(x.to_vector<float>()[0], 0x1p-64f);
  return all;
}

TEST(EagerAllocations, AreThoseOfNothingPending) {
  for (const bool pending : {false, true}) allocated(pending);  // pools fill
  const std::int64_t idle = allocated(false), busy = allocated(true);
  // Some of the simulator's, for a longer queue. A copy of the call would be six for each
  // operation, and a mark in the stream more.
  EXPECT_LE(busy, idle + 3 * kOps) << "of " << kOps << " operations";
}

// Each query of an event takes the driver about a microsecond.
TEST(EagerCalls, AskTheDriverSeldomWhatIsDone) {
  constexpr int kCalls = 1000;
  const Array x = full({256}, 1.f), y = full({256}, 2.f);
  Array z;
  const auto add = [&] {
    for (int i = 0; i < kCalls; ++i) {
      z = Array();
      z = x + y;
    }
  };
  add();
  shmap_sim::record_calls(true);
  add();
  std::int64_t queries = 0, others = 0;
  for (const std::string& call : shmap_sim::calls())
    ++(call.starts_with("cudaEventQuery") ? queries : others);
  shmap_sim::record_calls(false);
  EXPECT_LE(queries, kCalls / 10);
  EXPECT_LE(others, 21 * kCalls / 10);  // a launch, the current GPU, and a mark here and there
  EXPECT_EQ(z.to_vector<float>()[0], 3.f);
}

}  // namespace
}  // namespace shmap
