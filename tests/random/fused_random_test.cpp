// shmap-test: devices
// Random bits inside of fused programs: under jit neither bits nor masks are ever in memory, and
// the numbers are those of a call operation by operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/device/memory_space.h"
#include "core/device/runtime.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"
#include "tests/support/fused_cases.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::HasSubstr;
using ::testing::Not;

class FusedRandom : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_run_fused(runtime().backend().kind()))
      GTEST_SKIP() << "nothing is fused without NVRTC";
  }
};

bool on_gpus() { return runtime().backend().kind() == DeviceKind::cuda; }

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}
// The steps of a plan that compute.
int kernels(const std::string& plan) { return count(plan, "compute %"); }

// The most bytes of any memory space during a call, beyond those held before.
template <class F>
std::int64_t most_more(F call) {
  const std::vector<std::int64_t> before = test::bytes_in_use();
  for (MemorySpace* space : runtime().backend().spaces()) space->reset_peak();
  call();
  runtime().backend().synchronize();
  std::int64_t most = 0;
  std::size_t i = 0;
  for (MemorySpace* space : runtime().backend().spaces())
    most = std::max(most, space->peak_bytes() - before[i++]);
  return most;
}

Array dropout(Array key, Array x) {
  return where(random::bernoulli(key, 0.9f, x.shape()), x / 0.9f, 0.f);
}

TEST_F(FusedRandom, ADropoutMaskIsNeverStored) {
  const std::int64_t n = on_gpus() ? 1 << 18 : 1 << 24;  // simulated GPUs are slow
  const Array key = random::key(7), x = arange(n);
  const auto f = jit(dropout);
  Array y = f(key, x);
  EXPECT_EQ(kernels(f.plan_text()), 1) << f.plan_text();
  EXPECT_THAT(f.plan_text(), AllOf(HasSubstr("random_bits"), Not(HasSubstr("u32["))));
  y = f(key, x);  // captured
  y = Array();
  // A call takes memory for the result only: a mask would be a quarter of it more.
  const std::int64_t result = 4 * n;
  const std::int64_t more = most_more([&] { y = f(key, x); });
  EXPECT_LT(more, result + n / 16);
  EXPECT_EQ(bytes_of(y), bytes_of(dropout(key, x)));
}

// The mask of a layer is drawn by the forward pass and again by the backward one.
TEST_F(FusedRandom, BothPassesDrawTheMask) {
  const Array key = random::key(3), x = random::normal(random::key(1), {64, 96}),
              w = random::normal(random::key(2), {96, 96});
  const auto loss = [&](Array v) { return sum(square(matmul(dropout(key, tanh(v)), w))); };
  const auto fast = jit(grad(loss));
  const Array got = fast(x);
  const std::string plan = fast.plan_text();
  EXPECT_EQ(count(plan, "random_bits"), 2) << plan;
  EXPECT_THAT(plan, AllOf(Not(HasSubstr(":bool[64,96]")), Not(HasSubstr(":u32[64,96]")))) << plan;
  const Array want = grad(loss)(x);
  EXPECT_LT(max(abs(got - want)).item<float>(), 1e-5f * max(abs(want)).item<float>());
}

// Values, in every width and by samplers of different kinds.
TEST_F(FusedRandom, GivesWhatOperationsGiveOneByOne) {
  const auto same = [](auto f, auto... args) {
    const auto fast = jit(f);
    const Array got = fast(args...);
    EXPECT_EQ(bytes_of(got), bytes_of(f(args...))) << fast.plan_text();
    EXPECT_EQ(kernels(fast.plan_text()), 1) << fast.plan_text();
  };
  const Array key = random::key(11);
  for (const DType dtype : {u8, u16, u32, u64}) {
    same([&](Array k) { return (random::bits(k, {37, 21}, dtype) ^ Array(5)) >> Array(1); }, key);
    same([&](Array k) { return random::bits(k, {5000}, dtype) & Array(127); }, key);
  }
  for (const DType dtype : {f16, bf16, f32, f64}) {
    same([&](Array k) { return random::uniform(k, {37, 21}, dtype, -1, 3); }, key);
    same([&](Array k) { return random::normal(k, {1027}, dtype); }, key);
  }
  same([](Array k) { return random::gumbel(k, {300, 7}); }, key);
  same([](Array k) { return sum(random::uniform(k, {40, 200}), 1); }, key);
  same([](Array k) { return softmax(random::normal(k, {9, 129})); }, key);
  same(
      [](Array k) {
        return random::uniform(k, {6, 4}) + reshape(random::uniform(k, {24}), {6, 4});
      },
      key);
}

// A draw fills the rows of a fused program: it cannot give one number for each row of a reduction.
TEST_F(FusedRandom, NumbersForTheRowsOfAReduction) {
  const Array key = random::key(17), x = reshape(arange(80), {5, 16});
  const auto same = [&](auto f) {
    const std::vector<Array> got = jit(f)(x, key), want = f(x, key);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_LE(max(abs(got[i] - want[i])).template item<float>(), 1e-5f * 3000) << i;
  };
  using Arrays = std::vector<Array>;
  same([](Array x, Array k) { return Arrays{sum(x, 1) * random::uniform(k, {5})}; });
  same([](Array x, Array k) { return Arrays{logsumexp(x, 1) + random::normal(k, {5})}; });
  same([](Array x, Array k) {
    const Array m = max(x, 1);
    return Arrays{where(random::bernoulli(k, 0.5f, {5}), m, 0.f)};
  });
  // Two programs, one of the rows and one that draws, whose common operand could be in either.
  same([](Array x, Array k) {
    const Array m = exp(-max(x, 1) * 0.01f);
    return Arrays{x / expand_dims(m, 1), m * random::uniform(k, {5})};
  });
  same([](Array x, Array k) {
    const Array m = exp(-max(x, 1) * 0.01f);
    return Arrays{m * random::uniform(k, {5}), x / expand_dims(m, 1)};
  });
}

// Bits that are a result must be stored, and are then read by the rest of the program.
TEST_F(FusedRandom, BitsThatAreAResultAreStored) {
  const Array key = random::key(5);
  const auto f = [](Array k) {
    const Array bits = random::bits(k, {100});
    return std::vector<Array>{bits, bits >> Array(9)};
  };
  const auto fast = jit(f);
  const std::vector<Array> got = fast(key), want = f(key);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(bytes_of(got[i]), bytes_of(want[i]));
  EXPECT_EQ(count(fast.plan_text(), "random_bits"), 1) << fast.plan_text();
}

// A key for each row: vmap's.
TEST_F(FusedRandom, KeysOfABatchAreFusedByRows) {
  const Array keys = random::split(random::key(9), 12), x = ones({12, 50});
  const auto each = vmap(dropout);
  const auto fast = jit(each);
  const Array got = fast(keys, x);
  EXPECT_EQ(kernels(fast.plan_text()), 1) << fast.plan_text();
  EXPECT_EQ(bytes_of(got), bytes_of(each(keys, x)));
  for (std::int64_t i = 0; i < 12; ++i)
    EXPECT_EQ(bytes_of(got[i]), bytes_of(dropout(keys[i], x[i])));
}

// Each device draws its block of a split value in the same kernel.
TEST_F(FusedRandom, BlocksOfASplitMaskAreNeverStored) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array key = random::key(13), x = reshape(arange(16 * 64), {16, 64});
  const auto fast = jit(dropout);
  const Array got = fast(key, device_put(x, NamedSharding(mesh, P("i", "j"))));
  EXPECT_EQ(bytes_of(got), bytes_of(dropout(key, x)));
  EXPECT_THAT(fast.plan_text(), AllOf(Not(HasSubstr(":bool[")), Not(HasSubstr(":u32["))))
      << fast.plan_text();
}

}  // namespace
}  // namespace shmap
