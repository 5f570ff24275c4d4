// Attention by cuDNN, seen in the calls of its stand-in: when it is chosen, and what happens if it
// fails. Results are compared with the own kernels'.
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cuda/kernels/attention/library_attention.h"
#include "cuda/libraries/cudnn_attention.h"
#include "shmap/shmap.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

void use(const char* kernel) { setenv("SHMAP_ATTENTION_KERNEL", kernel, 1); }

class CudnnCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("SHMAP_SIM_CUDNN", "1", 1);
    use("cudnn");
  }
  void TearDown() override {
    shmap_sim::clear_faults();
    unsetenv("SHMAP_ATTENTION_KERNEL");
  }
};

Array some(Shape shape, double step, DType dtype = bf16) {
  const std::int64_t n = shape.num_elements();
  return astype(sin(reshape(arange(n), shape) * step), dtype).block_until_ready();
}

// A number of rows that no other test has makes a new form.
struct Operands {
  Array q, k, v;
  explicit Operands(std::int64_t rows, std::int64_t k_heads = 4, DType dtype = bf16)
      : q(some({2, rows, 4, 16}, 0.37, dtype)),
        k(some({2, rows, k_heads, 16}, 0.71, dtype)),
        v(some({2, rows, k_heads, 16}, 0.53, dtype)) {}
  Operands on(Device device) const {
    Operands out = *this;
    for (Array* a : {&out.q, &out.k, &out.v}) *a = device_put(*a, device);
    return out;
  }
};

Array attended(const Operands& x) { return attention(x.q, x.k, x.v, {.is_causal = true}); }
std::array<Array, 3> gradients(const Operands& x) {
  const auto loss = [](Array q, Array k, Array v) {
    return sum(sin(astype(attention(q, k, v, {.is_causal = true}), f32)));
  };
  return grad(loss, {0, 1, 2})(x.q, x.k, x.v);
}

// The calls of cuDNN while f runs and its work is done.
template <class F>
std::vector<std::string> executed(F f) {
  shmap_sim::record_calls(true);
  f();
  std::vector<std::string> out;
  for (const std::string& line : shmap_sim::calls())
    if (line.starts_with("cudnnBackendExecute ")) out.push_back(line);
  shmap_sim::record_calls(false);
  return out;
}

double distance(const Array& a, const Array& b) {
  return max(abs(astype(a, f32) - astype(b, f32))).item<float>();
}

std::string last_choice() {
  const std::vector<std::string> all = cuda::attention_choices();
  return all.empty() ? "" : all.back();
}

// GPUs of one kind use the same kernel, so that shared values have the same bits. Must be the first
// test, since this process has used no device yet.
TEST(CudnnOnSeveralGpus, AFormIsTimedOnOneOfThem) {
  const test::ChildResult child = test::in_child(
      {{"SHMAP_DEVICES", "cuda"},
       {"SHMAP_SIM_GPUS", "2"},
       {"SHMAP_SIM_CUDNN", "1"},
       {"SHMAP_ATTENTION_KERNEL", "auto"},
       {"SHMAP_CACHE_DIR", "off"}},
      [] {
        const Operands x(33);
        for (const Device device : devices()) {
          const Operands there = x.on(device);
          const std::size_t calls = executed([&] { attended(there).block_until_ready(); }).size();
          std::printf("%s ", calls >= 4 ? "timed" : "known");
        }
        for (const std::string& text : cuda::attention_choices())
          std::printf("%s ",
                      text.find("as measured before") != std::string::npos ? "again" : "new");
      });
  EXPECT_EQ(child.output, "timed known new again ");
}

// In a process of its own, whose GPU has the shared memory of one with wgmma.
TEST(OwnAttention, IsByTheKernelThatIsAskedForAtEachCall) {
  const test::ChildResult child = test::in_child(
      {{"SHMAP_DEVICES", "cuda:0"}, {"SHMAP_SIM_GPUS", "1"}, {"SHMAP_SIM_SHARED", "232448"}}, [] {
        const Array x = some({1, 40, 2, 80}, 0.37);
        for (const char* kernel : {"own", "own_wgmma", "own"}) {
          use(kernel);
          shmap_sim::record_calls(true);
          attention(x, x, x).block_until_ready();
          bool by_warpgroups = false;
          for (const std::string& name : shmap_sim::executed())
            by_warpgroups |= name.find("attend_by_warpgroups") != std::string::npos;
          shmap_sim::record_calls(false);
          std::printf("%s ", by_warpgroups ? "wgmma" : "mma");
        }
      });
  EXPECT_EQ(child.output, "mma wgmma mma ");
}

TEST_F(CudnnCalls, ComputesWhatTheOwnKernelsCompute) {
  for (const DType dtype : {bf16, f16})
    for (const std::int64_t k_heads : {4, 2}) {
      const Operands x(21, k_heads, dtype);
      use("own");
      Array own;
      EXPECT_THAT(executed([&] { own = attended(x).block_until_ready(); }), IsEmpty());
      const auto own_bars = gradients(x);
      for (const char* kernel : {"cudnn", "cudnn_unordered"}) {
        use(kernel);
        Array out;
        EXPECT_EQ(executed([&] { out = attended(x).block_until_ready(); }).size(), 1u);
        EXPECT_LT(distance(out, own), 0.02);
        std::array<Array, 3> bars;
        EXPECT_EQ(executed([&] {
                    bars = gradients(x);
                    for (const Array& bar : bars) bar.block_until_ready();
                  }).size(),
                  2u);
        for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(bars[i], own_bars[i]), 0.05);
      }
    }
}

// The two keep different numbers of a row.
TEST_F(CudnnCalls, EithersBackwardPassFollowsEithersForwardPass) {
  const Operands x(32, 2);
  const auto bars = [&](const char* forward, const char* backward) {
    use(forward);
    auto [y, pull] =
        vjp([](std::vector<Array> a) { return attention(a[0], a[1], a[2], {.is_causal = true}); },
            std::vector<Array>{x.q, x.k, x.v});
    y.block_until_ready();
    use(backward);
    std::vector<Array> out = std::get<0>(pull(some({2, 32, 4, 16}, 0.83)));
    for (const Array& bar : out) bar.block_until_ready();
    return out;
  };
  const std::vector<Array> own = bars("own", "own");
  for (const auto& [forward, backward] :
       {std::pair("own", "cudnn"), std::pair("cudnn", "own"), std::pair("cudnn", "cudnn")}) {
    std::vector<Array> got;
    const std::size_t calls = executed([&] { got = bars(forward, backward); }).size();
    EXPECT_EQ(calls, std::string(forward) == backward ? 2u : 1u);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_LT(distance(got[i], own[i]), 0.05) << forward << ", " << backward << ": " << i;
  }
}

TEST_F(CudnnCalls, OtherCallsAreTheOwnKernels) {
  const Operands wide(22, 4, f32);
  EXPECT_THAT(executed([&] { attended(wide).block_until_ready(); }), IsEmpty());
  EXPECT_EQ(last_choice(), "attention: own kernel where cuDNN has it for f16 and bf16");
  const Operands x(22);
  const Array mask = ones({22, 22}, bool_);
  EXPECT_THAT(executed([&] { attention(x.q, x.k, x.v, {.mask = mask}).block_until_ready(); }),
              IsEmpty());
  EXPECT_EQ(last_choice(), "attention: own kernel where there is a mask");
}

TEST_F(CudnnCalls, ABiasIsTakenWhereItIsAskedFor) {
  const Array q = some({2, 23, 4, 16}, 0.37), k = some({2, 24, 4, 16}, 0.71),
              v = some({2, 24, 4, 16}, 0.53), bias = some({4, 23, 24}, 0.9, f32);
  const auto biased = [&] { return attention(q, k, v, {.bias = bias}); };
  Array out;
  EXPECT_EQ(executed([&] { out = biased().block_until_ready(); }).size(), 1u);
  use("own");
  EXPECT_LT(distance(out, biased()), 0.02);
  use("auto");
  EXPECT_THAT(executed([&] { biased().block_until_ready(); }), IsEmpty());
}

TEST_F(CudnnCalls, FaultsOfVersionsAreAvoided) {
  cuda::CudnnAttention a;
  a.q_rows = 64;
  a.k_rows = 100;
  EXPECT_THAT(cuda::cudnn_grad_fault(a, 91500), HasSubstr("multiples of 128"));
  EXPECT_EQ(cuda::cudnn_grad_fault(a, 91501), nullptr);
  a.k_rows = 256;
  EXPECT_EQ(cuda::cudnn_grad_fault(a, 91500), nullptr);
  a.q_rows = a.k_rows = 1;
  EXPECT_NE(cuda::cudnn_grad_fault(a, 91901), nullptr);
}

TEST_F(CudnnCalls, WhatWasChosenIsWrittenDown) {
  const std::filesystem::path folder =
      ::testing::TempDir() + "shmap_choices_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  setenv("SHMAP_DUMP", folder.c_str(), 1);
  attended(Operands(29)).block_until_ready();
  unsetenv("SHMAP_DUMP");
  std::ifstream file(folder / "attention.txt");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "attention bf16[2,4,29,16], keys [2,4,29,16], causal: cuDNN 9.19.1, 0: engine 1");
  std::filesystem::remove_all(folder);
}

TEST_F(CudnnCalls, APlanThatDoesNotCompileIsPassedOver) {
  const Operands x(24);
  shmap_sim::inject("cudnnPlan", cudaErrorUnknown);
  EXPECT_THAT(executed([&] { attended(x).block_until_ready(); }),
              ::testing::ElementsAre(HasSubstr("engine 2")));
  EXPECT_THAT(last_choice(), HasSubstr("cuDNN 9.19.1, 1: engine 2"));
}

TEST_F(CudnnCalls, WhereACallFailsTheOwnKernelRuns) {
  const Operands x(25);
  use("own");
  const Array own = attended(x).block_until_ready();
  use("cudnn");
  shmap_sim::inject("cudnnBackendExecute", cudaErrorUnknown);
  EXPECT_EQ(distance(attended(x), own), 0);
  EXPECT_THAT(last_choice(), HasSubstr("own kernel, since cudnnBackendExecute: the cuDNN of the "
                                       "simulator: an error (the launch fails)"));
  // cuDNN is not asked again.
  EXPECT_THAT(executed([&] { attended(x).block_until_ready(); }), IsEmpty());
}

// The case of a capture, whose graph has its own workspace.
TEST_F(CudnnCalls, WhereThereIsNoMemoryTheOwnKernelRuns) {
  const Operands x(31);
  use("own");
  const Array own = attended(x).block_until_ready();
  use("cudnn");
  shmap_sim::inject("cudnnPlan", cudaErrorUnknown);  // so that the plan has a workspace
  attended(x).block_until_ready();
  auto planned =
      jit([](Array q, Array k, Array v) { return attention(q, k, v, {.is_causal = true}); });
  planned(x.q, x.k, x.v).block_until_ready();  // eagerly
  shmap_sim::inject("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_EQ(distance(planned(x.q, x.k, x.v), own), 0);
  EXPECT_EQ(distance(planned(x.q, x.k, x.v), own), 0);
  EXPECT_THAT(last_choice(), HasSubstr("own kernel, since cudaMalloc of the workspace of cuDNN"));
}

TEST_F(CudnnCalls, PlansReplayIt) {
  const Operands x(26);
  const auto f = [](Array q, Array k, Array v) {
    return attention(q * 2, k, v, {.is_causal = true}) + 1;
  };
  const Array eager = f(x.q, x.k, x.v);
  shmap_sim::inject("cudnnPlan", cudaErrorUnknown);  // so that the plan has a workspace
  auto planned = jit(f);
  for (int i = 0; i < 3; ++i) EXPECT_LT(distance(planned(x.q, x.k, x.v), eager), 0.03);
  const std::uint64_t allocations = shmap_sim::counts().allocations;
  shmap_sim::record_calls(true);
  Array out = planned(x.q, x.k, x.v).block_until_ready();
  int runs = 0;
  for (const std::string& name : shmap_sim::executed()) runs += name == "cudnnBackendExecute";
  for (const std::string& call : shmap_sim::calls()) EXPECT_THAT(call, Not(HasSubstr("cudnn")));
  shmap_sim::record_calls(false);
  EXPECT_EQ(runs, 1);
  EXPECT_LE(shmap_sim::counts().allocations, allocations + 1);  // the result
}

TEST_F(CudnnCalls, TheFasterOneIsMeasuredAndKeptOnDisk) {
  const std::string folder = ::testing::TempDir() + "shmap_attention_" + std::to_string(getpid());
  const char* const before = std::getenv("SHMAP_CACHE_DIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("SHMAP_CACHE_DIR", folder.c_str(), 1);
  use("auto");
  const Operands x(27);
  // The own kernel, and two plans of cuDNN's, each twice at least.
  EXPECT_GE(executed([&] { attended(x).block_until_ready(); }).size(), 4u);
  EXPECT_THAT(last_choice(),
              AllOf(HasSubstr("attention bf16[2,4,27,16], keys [2,4,27,16], causal: "),
                    HasSubstr("own kernel "), HasSubstr("0: engine 1 "), HasSubstr(" ms")));
  EXPECT_LE(executed([&] { attended(x).block_until_ready(); }).size(), 1u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files += entry.path().extension() == ".attention";
  EXPECT_EQ(files, 1);
  std::filesystem::remove_all(folder);
  if (before != nullptr)
    setenv("SHMAP_CACHE_DIR", kept.c_str(), 1);
  else
    unsetenv("SHMAP_CACHE_DIR");
}

TEST_F(CudnnCalls, WhereNothingIsTimedTheOwnKernelRuns) {
  use("auto");
  setenv("SHMAP_TIME_GEMMS", "0", 1);
  const Operands x(28);
  EXPECT_THAT(executed([&] { attended(x).block_until_ready(); }), IsEmpty());
  EXPECT_THAT(last_choice(), HasSubstr("own kernel, since nothing is timed"));
  unsetenv("SHMAP_TIME_GEMMS");
}

TEST_F(CudnnCalls, FewQueriesAreNotTimed) {
  use("auto");
  const Operands x(15);
  EXPECT_THAT(executed([&] { attended(x).block_until_ready(); }), IsEmpty());
  EXPECT_EQ(last_choice(), "attention: own kernel where there are few queries");
}

// Must be the last of these tests: this process times no form after it.
TEST_F(CudnnCalls, NotEveryFormIsTimed) {
  use("auto");
  setenv("SHMAP_CACHE_DIR", "off", 1);
  const Array q = some({1, 16, 1, 8}, 0.37);
  int timed = 0;
  for (std::int64_t rows = 1; rows <= 70; ++rows) {
    const Array k = some({1, rows, 1, 8}, 0.71);
    timed += !executed([&] { attention(q, k, k).block_until_ready(); }).empty();
  }
  EXPECT_LE(timed, 64);
  EXPECT_GE(timed, 60);
  EXPECT_THAT(last_choice(), HasSubstr("own kernel, since many others were timed"));
  unsetenv("SHMAP_CACHE_DIR");
}

}  // namespace
}  // namespace shmap
