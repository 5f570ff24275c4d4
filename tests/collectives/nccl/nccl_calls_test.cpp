// The calls of NCCL for each collective on four GPUs of the simulator: the groups, their order,
// counts, types and streams, the lifetimes of communicators, and the handling of errors.
#include <cuda_runtime_api.h>
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <shmap/shmap.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "collectives/nccl/nccl_api.h"
#include "cuda_sim/stand_ins/nccl_log.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

Mesh ring() { return make_mesh({4}, "i"); }
Mesh grid() { return make_mesh({2, 2}, axes("i", "j")); }

class NcclCalls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // The communicators are there: a test sees its own calls.
    shard_map([](Array x) { return psum(x, "i"); }, ring(), P("i"), P())(zeros({4}))
        .block_until_ready();
  }
  void SetUp() override {
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    shmap_sim::clear_nccl_log();
  }
  void TearDown() override { EXPECT_THAT(shmap_sim::nccl_mistakes(), IsEmpty()); }

  // The calls for f of blocks x[4 devices], which are rows of it.
  template <class F>
  static Lines calls(F f, const Array& x, P out = P("i"), const Mesh& mesh = ring(),
                     P in = P("i")) {
    shmap_sim::clear_nccl_log();
    last_ = shard_map(f, mesh, in, out)(x);
    last_.block_until_ready();
    return shmap_sim::nccl_log();
  }
  static Array last_;
};
Array NcclCalls::last_;

// "GroupStart", the line for each of the ranks with its number in it, "GroupEnd".
Lines group(const std::string& before, const std::string& after, int ranks = 4) {
  Lines lines = {"GroupStart"};
  for (int r = 0; r < ranks; ++r)
    lines.push_back(before + std::to_string(r) + "/" + std::to_string(ranks) + after);
  lines.push_back("GroupEnd");
  return lines;
}
Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(NcclCalls, ASumIsOneGroupOfAllRanks) {
  const Array x = arange(24);
  EXPECT_THAT(calls([](Array b) { return psum(b, "i"); }, x, P()),
              ElementsAreArray(group("AllReduce ", " count 6 f32 sum")));
  EXPECT_EQ(last_.to_vector<float>(), (std::vector<float>{36, 40, 44, 48, 52, 56}));
}

TEST_F(NcclCalls, EachTypeAndReduction) {
  const auto sum = [](Array b) { return psum(b, "i"); };
  for (const auto& [dtype, name] : std::vector<std::pair<DType, std::string>>{{i8, "i8"},
                                                                              {u8, "u8"},
                                                                              {i32, "i32"},
                                                                              {u32, "u32"},
                                                                              {i64, "i64"},
                                                                              {u64, "u64"},
                                                                              {f16, "f16"},
                                                                              {bf16, "bf16"},
                                                                              {f64, "f64"}}) {
    EXPECT_THAT(calls(sum, ones({8}, dtype), P()),
                ElementsAreArray(group("AllReduce ", " count 2 " + name + " sum")));
  }
  EXPECT_THAT(calls([](Array b) { return pmax(b, "i"); }, ones({8}, i32), P()),
              ElementsAreArray(group("AllReduce ", " count 2 i32 max")));
  EXPECT_THAT(calls([](Array b) { return pmin(b, "i"); }, ones({8}, u8), P()),
              ElementsAreArray(group("AllReduce ", " count 2 u8 min")));
}

TEST_F(NcclCalls, WhatNcclReducesOtherwiseIsGathered) {
  EXPECT_THAT(calls([](Array b) { return psum(b, "i"); }, full({8}, 20000, i16), P()),
              ElementsAreArray(group("AllGather ", " count 4 u8 gathered")));
  EXPECT_EQ(last_.to_vector<std::int16_t>(), (std::vector<std::int16_t>(2, 80000 - 65536)));
  // The NaN of one rank is the result; NCCL would leave it out.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(calls([](Array b) { return pmax(b, "i"); }, array<float>({1, nan, 3, 4}, {4}), P()),
              ElementsAreArray(group("AllGather ", " count 4 u8 gathered")));
  EXPECT_NE(last_.item<float>(), last_.item<float>());
}

TEST_F(NcclCalls, Gathers) {
  const Array x = reshape(arange(8 * 3, f32), {8, 3});
  EXPECT_THAT(calls([](Array b) { return all_gather(b, "i", {.axis = 0, .tiled = true}); }, x),
              ElementsAreArray(group("AllGather ", " count 24 u8 gathered")));
  // Pieces that interleave go through scratch memory, in the same call.
  EXPECT_THAT(calls([](Array b) { return all_gather(b, "i", {.axis = 1, .tiled = true}); }, x),
              ElementsAreArray(group("AllGather ", " count 24 u8 gathered")));
  const auto got = last_.to_vector<float>();
  ASSERT_EQ(got.size(), 4u * 2 * 12);
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t c = 0; c < 12; ++c)
      EXPECT_EQ(got[row * 12 + c], static_cast<float>((c / 3 * 2 + row % 2) * 3 + c % 3));
}

TEST_F(NcclCalls, Scatters) {
  const Array x = reshape(arange(16 * 4, i32), {16, 4});
  const auto scatter = [](int dim) {
    return
        [dim](Array b) { return psum_scatter(b, "i", {.scatter_dimension = dim, .tiled = true}); };
  };
  EXPECT_THAT(calls(scatter(0), x), ElementsAreArray(group("ReduceScatter ", " count 4 i32 sum")));
  const auto rows = last_.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < rows.size(); ++i)  // 4 rows, the sums over blocks of 16 elements
    EXPECT_EQ(rows[i], static_cast<std::int32_t>(4 * i + 16 * (0 + 1 + 2 + 3)));
  EXPECT_THAT(calls(scatter(1), x), ElementsAreArray(group("ReduceScatter ", " count 4 i32 sum")));
  const auto columns = last_.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < columns.size(); ++i)
    EXPECT_EQ(columns[i], static_cast<std::int32_t>(4 * (i % 4 * 4 + i / 4) + 16 * 6));
}

TEST_F(NcclCalls, APermutationSendsWhatMoves) {
  const auto permute = [](std::vector<std::pair<int, int>> perm) {
    return [perm](Array b) { return ppermute(b, "i", perm); };
  };
  EXPECT_THAT(calls(permute({{0, 1}, {1, 2}, {2, 3}, {3, 0}}), arange(8, i32)),
              ElementsAre("GroupStart", "Send 0/4 count 8 u8 to 1", "Recv 0/4 count 8 u8 from 3",
                          "Send 1/4 count 8 u8 to 2", "Recv 1/4 count 8 u8 from 0",
                          "Send 2/4 count 8 u8 to 3", "Recv 2/4 count 8 u8 from 1",
                          "Send 3/4 count 8 u8 to 0", "Recv 3/4 count 8 u8 from 2", "GroupEnd"));
  EXPECT_EQ(last_.to_vector<std::int32_t>(), (std::vector<std::int32_t>{6, 7, 0, 1, 2, 3, 4, 5}));
  // Rank 3 keeps its own, rank 0 gets zeros, rank 2 is sent to 1 and gets zeros.
  EXPECT_THAT(calls(permute({{3, 3}, {2, 1}}), arange(8, i32)),
              ElementsAre("GroupStart", "Recv 1/4 count 8 u8 from 2", "Send 2/4 count 8 u8 to 1",
                          "GroupEnd"));
  EXPECT_EQ(last_.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 4, 5, 0, 0, 6, 7}));
  EXPECT_THAT(calls(permute({}), arange(8, i32)), IsEmpty());
  EXPECT_EQ(last_.to_vector<std::int32_t>(), std::vector<std::int32_t>(8, 0));
}

TEST_F(NcclCalls, AnExchangeSendsFromEachToEach) {
  const Array x = reshape(arange(4 * 4, i32), {4, 4});
  Lines wanted = {"GroupStart"};
  for (int r = 0; r < 4; ++r) {
    for (int q = 0; q < 4; ++q) {
      const std::string who = std::to_string(r) + "/4 count 4 u8 ";
      wanted.push_back("Send " + who + "to " + std::to_string(q));
      wanted.push_back("Recv " + who + "from " + std::to_string(q));
    }
  }
  wanted.push_back("GroupEnd");
  EXPECT_THAT(
      calls([](Array b) { return all_to_all(b, "i", 1, 0, {.tiled = true}); }, x, P(none, "i")),
      ElementsAreArray(wanted));
  EXPECT_EQ(last_.to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
}

TEST_F(NcclCalls, ABroadcastComesFromItsRank) {
  EXPECT_THAT(calls([](Array b) { return broadcast_from(b, "i", 2); }, arange(8, i32), P()),
              ElementsAreArray(group("Broadcast ", " count 8 u8 root 2")));
  EXPECT_EQ(last_.to_vector<std::int32_t>(), (std::vector<std::int32_t>{4, 5}));
}

TEST_F(NcclCalls, SubCliquesAreSplitOnceFromTheMeshs) {
  const auto sum_j = [](Array b) { return psum(b, "j"); };
  const Array x = arange(8, i32);
  const int before = shmap_sim::nccl_communicators();
  const Lines sums = group("AllReduce ", " count 2 i32 sum", 2);
  EXPECT_THAT(calls(sum_j, x, P("i"), grid(), P(axes("i", "j"))),
              ElementsAreArray(Lines{"InitAll 0,1,2,3", "GroupStart", "Split 0/4 color 0 key 0",
                                     "Split 1/4 color 0 key 1", "Split 2/4 color 1 key 0",
                                     "Split 3/4 color 1 key 1", "GroupEnd"} +
                               sums + sums));
  EXPECT_EQ(last_.to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 4, 10, 12}));
  EXPECT_EQ(shmap_sim::nccl_communicators(), before + 8);
  EXPECT_THAT(calls(sum_j, x, P("i"), grid(), P(axes("i", "j"))), ElementsAreArray(sums + sums));
  // Groups of ranks are cliques of their own; over the axes the other way round, ranks are.
  const auto by_groups = [](Array b) {
    return psum(b, "i", {.axis_index_groups = {{0, 3}, {1, 2}}});
  };
  EXPECT_THAT(
      calls(by_groups, x),
      ElementsAreArray(Lines{"GroupStart", "Split 0/4 color 0 key 0", "Split 3/4 color 0 key 1",
                             "Split 1/4 color 1 key 0", "Split 2/4 color 1 key 1", "GroupEnd"} +
                       sums + sums));
  EXPECT_EQ(last_.to_vector<std::int32_t>(), (std::vector<std::int32_t>{6, 8, 6, 8, 6, 8, 6, 8}));
}

TEST_F(NcclCalls, ACapturedProgramAsksOnce) {
  const auto f = jit(shard_map(
      [](Array b) {
        return psum(ppermute(b * 2, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}), "i");
      },
      ring(), P("i"), P()));
  const Array x = arange(8, i32);
  const std::vector<std::int32_t> wanted = {24, 32};
  EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
  EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);  // captured
  // If each GPU has its own graphs, no graph may contain a group, so that it is called at each
  // launch.
  const char* graphs = std::getenv("SHMAP_GRAPHS");
  const bool calls_each_time = graphs != nullptr && std::string(graphs) == "per_gpu";
  int captured = 0;
  for (const std::string& line : shmap_sim::nccl_log()) captured += line.ends_with(" captured");
  EXPECT_EQ(captured, calls_each_time ? 0 : 8 + 4);
  shmap_sim::clear_nccl_log();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
  EXPECT_EQ(shmap_sim::nccl_log().size(), calls_each_time ? 5u * (8 + 4 + 4) : 0u);
}

TEST_F(NcclCalls, AnErrorOfACallIsTheCollectives) {
  shmap_sim::inject("ncclAllReduce", cudaErrorUnknown);
  expect_error<CollectiveError>(
      [] {
        shard_map([](Array b) { return psum(b, "i"); }, ring(), P("i"), P())(zeros({4}))
            .block_until_ready();
      },
      {"ncclAllReduce", "internal error", "psum", "mesh coordinates (i,) = (0,)"});
  // The next one runs.
  EXPECT_THAT(calls([](Array b) { return psum(b, "i"); }, ones({4}), P()),
              ElementsAreArray(group("AllReduce ", " count 1 f32 sum")));
  EXPECT_EQ(last_.item<float>(), 4);
}

// Rank 0 keeps its own block, and makes no calls.
TEST_F(NcclCalls, AnErrorNamesADeviceThatTakesPart) {
  shmap_sim::inject("ncclSend", cudaErrorUnknown);
  expect_error<CollectiveError>(
      [] {
        shard_map(
            [](Array b) {
              return ppermute(b, "i", {{0, 0}, {1, 2}, {2, 1}});
            },
            ring(), P("i"), P("i"))(zeros({4}))
            .block_until_ready();
      },
      {"ncclSend", "internal error", "ppermute", "mesh coordinates (i,) = (1,)"});
}

// The second of two communicators cannot be made; then both are made again, of the same parent.
TEST_F(NcclCalls, AfterASplitThatFailedNothingIsLeft) {
  const Mesh columns = make_mesh({2, 2}, axes("failed", "j"));
  const auto sum = [&](const char* axis) {
    return shard_map([axis](Array b) { return psum(b, axis); }, columns, P(axes("failed", "j")),
                     P(std::string(axis) == "j" ? "failed" : "j"));
  };
  shard_map([](Array b) { return psum(b, axes("failed", "j")); }, columns, P(axes("failed", "j")),
            P())(ones({4}))
      .block_until_ready();
  for (int nth = 1; nth <= 2; ++nth) {
    const int before = shmap_sim::nccl_communicators();
    shmap_sim::inject("ncclCommSplit", cudaErrorUnknown, nth);
    expect_error<CollectiveError>([&] { sum("j")(ones({4})).block_until_ready(); },
                                  {"ncclGroupEnd"});
    EXPECT_EQ(shmap_sim::nccl_communicators(), before) << nth;
  }
  const int before = shmap_sim::nccl_communicators();
  EXPECT_EQ(sum("j")(arange(4)).to_vector<float>(), (std::vector<float>{1, 5}));
  EXPECT_EQ(sum("failed")(arange(4)).to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(shmap_sim::nccl_communicators(), before + 8);
}

TEST_F(NcclCalls, AnErrorOfWhatIsUnderWayEndsTheCommunicators) {
  EXPECT_EXIT(
      {
        const auto sum = [] {
          shard_map([](Array b) { return psum(b, "i"); }, ring(), P("i"), P())(ones({4}))
              .block_until_ready();
        };
        sum();
        shmap_sim::fail_nccl_communicators();
        // Another thread may be calling NCCL: nothing is aborted under its hands.
        std::atomic<bool> opened{false};
        std::thread other([&] {
          nccl::Group group;
          opened = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          EXPECT_GT(shmap_sim::nccl_communicators(), 0);
          group.end();
        });
        while (!opened) std::this_thread::yield();
        expect_error<CollectiveError>(sum, {"NCCL reported an error", "internal error"});
        other.join();
        expect_error<DeviceError>(sum, {"NCCL", "internal error"});  // the GPUs are lost
        while (shmap_sim::nccl_communicators() > 0) std::this_thread::yield();
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

// At exit communicators are destroyed before the devices, except those that a graph refers to.
TEST_F(NcclCalls, CommunicatorsOutliveTheirGraphs) {
  EXPECT_EXIT(
      {
        std::atexit([] {  // runs last
          const bool fine = shmap_sim::nccl_mistakes().empty();
          // The four that split from the others have a graph; the mesh's own four are gone.
          std::_Exit(fine ? 10 + shmap_sim::nccl_communicators() : 1);
        });
        const auto sum = [](Array b) { return psum(b, "j"); };
        static auto& f =
            *new auto(jit(shard_map(sum, grid(), P(axes("i", "j")), P("i"))));  // and its graph
        for (int i = 0; i < 3; ++i) f(arange(8)).block_until_ready();
        std::exit(2);
      },
      ::testing::ExitedWithCode(10 + 4), "");
}

TEST(NcclOfOneGpu, RanksShareItWhereNcclAllowsIt) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto run = [] {
    return shard_map([](Array b) { return psum(b, "i"); }, ring(), P("i"), P())(ones({4}))
        .item<float>();
  };
  EXPECT_EXIT(
      {
        setenv("SHMAP_DEVICES", "cuda:0x4/4", 1);
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
        expect_error<CollectiveError>(
            run, {"psum", "on one GPU", "2.30.0", "2.22.3", "SHMAP_COMMUNICATOR=in_process"});
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_DEVICES", "cuda:0x4/4", 1);
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
        shmap_sim::set_nccl_version(23000);
        EXPECT_EQ(run(), 4);
        EXPECT_THAT(shmap_sim::nccl_log(),
                    ElementsAreArray(group("InitRank ", " on GPU 0") +
                                     group("AllReduce ", " count 1 f32 sum")));
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

// While one of two ranks waits for the other, the process is stopped for longer than the deadline;
// the other rank comes soon afterwards.
[[noreturn]] void stop_while_a_rank_waits() {
  using Clock = std::chrono::steady_clock;
  setenv("SHMAP_COLLECTIVE_TIMEOUT_SEC", "6", 1);
  EXPECT_EQ(devices().size(), 4u);
  ncclUniqueId id;
  nccl::check(nccl::api().unique_id(&id), "ncclGetUniqueId");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto begin_rank = [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    nccl::check(nccl::api().init_rank_config(&comm, 2, id, rank, &config),
                "ncclCommInitRankConfig");
    return comm;
  };
  const ncclComm_t comm = begin_rank(0);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    usleep(300'000);
    kill(self, SIGSTOP);
    sleep(8);
    kill(self, SIGCONT);
    _exit(0);
  }
  std::thread other([&] {
    for (auto last = Clock::now();; last = Clock::now()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (Clock::now() - last > std::chrono::seconds(7)) break;  // the process was stopped
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    begin_rank(1);
  });
  EXPECT_NO_THROW(nccl::settle({&comm, 1}, "ncclCommInitRankConfig"));
  other.join();
  waitpid(child, nullptr, 0);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(NcclDeadline, DoesNotCountWhileTheProcessIsStopped) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(stop_while_a_rank_waits(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shmap

int main(int argc, char** argv) {
  setenv("SHMAP_SIM_GPUS", "4", 1);
  setenv("SHMAP_DEVICES", "cuda", 1);
  setenv("SHMAP_COMMUNICATOR", "nccl", 1);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
