// The choice of how a collective of four GPUs of the simulator is carried out: by its bytes,
// eagerly and in plans, and by whether the GPUs reach each other's memory.
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cstdlib>

#include "collectives/link_model.h"
#include "cuda_sim/stand_ins/nccl_log.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

constexpr int kRanks = 4;

Mesh ring() { return make_mesh({kRanks}, "i"); }

// True if f of blocks of n floats calls NCCL in its third call.
template <class F>
bool asks_nccl(F f, std::int64_t n, bool jitted, P out = P("i")) {
  auto mapped = shard_map(f, ring(), P("i"), out, {.check_vma = false});
  const Array x = arange(n * kRanks, f32);
  auto planned = jit(mapped);
  Array y;
  for (int i = 0; i < 3; ++i) {
    shmap_sim::clear_nccl_log();
    y = jitted ? planned(x) : mapped(x);
    y.block_until_ready();
    if (jitted && i == 1) {  // captured: a replay asks for nothing
      const bool asked = !shmap_sim::nccl_log().empty();
      planned(x).block_until_ready();
      return asked;
    }
  }
  return !shmap_sim::nccl_log().empty();
}

TEST(NcclChoice, IsTheModelsEagerlyAndInPlans) {
  struct Case {
    CollectiveKind kind;
    Array (*f)(Array);
    std::int64_t in_per_element, out_per_element;  // bytes; the operand is of n floats
  };
  const Case cases[] = {
      {CollectiveKind::all_reduce, [](Array x) { return psum(x, "i"); }, 4, 4},
      {CollectiveKind::all_gather, [](Array x) { return all_gather(x, "i", {.tiled = true}); }, 4,
       16},
      {CollectiveKind::reduce_scatter,
       [](Array x) { return psum_scatter(x, "i", {.tiled = true}); }, 16, 4},
      {CollectiveKind::permute,
       [](Array x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
       },
       4, 4},
  };
  int by_nccl = 0, in_process = 0;
  for (const Case& c : cases) {
    for (const std::int64_t n : {std::int64_t{4}, std::int64_t{1} << 20}) {
      const std::int64_t operand = c.kind == CollectiveKind::reduce_scatter ? n * kRanks : n;
      const bool wanted =
          !goes_in_process(c.kind, kRanks, n * c.in_per_element, n * c.out_per_element);
      for (const bool jitted : {false, true}) {
        EXPECT_EQ(asks_nccl(c.f, operand, jitted), wanted)
            << "kind " << static_cast<int>(c.kind) << ", n " << n << ", jitted " << jitted;
      }
      ++(wanted ? by_nccl : in_process);
    }
  }
  EXPECT_GE(by_nccl, 2);
  EXPECT_GE(in_process, 4);
  EXPECT_THAT(shmap_sim::nccl_mistakes(), ::testing::IsEmpty());
}

// The driver copies between them through the host; a kernel could not read there.
TEST(NcclChoice, GpusThatDoNotReachEachOther) {
  const auto run = [](auto f) {
    return shard_map(f, ring(), P("i"), P("i"), {.check_vma = false})(arange(8, f32))
        .template to_vector<float>();
  };
  const auto around = [](Array x) { return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}); };
  const auto sum = [](Array x) { return psum(x, "i"); };
  const std::vector<float> turned = {6, 7, 0, 1, 2, 3, 4, 5};
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("SHMAP_SIM_PEER", "0", 1);
        setenv("SHMAP_SIM_PROTECT", "1", 1);
        setenv("SHMAP_COMMUNICATOR", "in_process", 1);
        EXPECT_EQ(run(around), turned);
        test::expect_error<CollectiveError>(
            [&] { run(sum); },
            {"psum", "do not reach each other's memory", "NCCL", "unset SHMAP_COMMUNICATOR"});
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_SIM_PEER", "0", 1);
        setenv("SHMAP_SIM_PROTECT", "1", 1);
        EXPECT_EQ(run(around), turned);
        EXPECT_FALSE(shmap_sim::nccl_log().empty());
        EXPECT_EQ(run(sum), (std::vector<float>{12, 16, 12, 16, 12, 16, 12, 16}));
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_SIM_PEER", "0", 1);
        setenv("SHMAP_NCCL_PATH", "/nonexistent", 1);
        EXPECT_EQ(run(around), turned);
        test::expect_error<CollectiveError>([&] { run(sum); }, {"psum", "SHMAP_NCCL_PATH"});
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shmap

int main(int argc, char** argv) {
  setenv("SHMAP_SIM_GPUS", "4", 1);
  setenv("SHMAP_DEVICES", "cuda", 1);
  unsetenv("SHMAP_COMMUNICATOR");
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
