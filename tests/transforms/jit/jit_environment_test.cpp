// The environment variables for looking into jit. Each test runs in a child process, which reads
// them anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "shmap/shmap.h"
#include "tests/support/child_process.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::in_child;
using testing::HasSubstr;
using testing::Not;

Mesh mesh8() { return make_mesh({8}, "i"); }

TEST(CheckCaptures, FindsWhatChangedBehindJit) {
  const ChildResult r = in_child({{"SHMAP_CHECK_CAPTURES", "1"}}, [] {
    float factor = 2;
    const auto f = jit([&](Array x) { return x * factor; });
    f(ones({3}));
    f(ones({3}));
    factor = 3;
    f(ones({3}));
  });
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("depends on something that changed since it was traced"));
  EXPECT_THAT(r.output, HasSubstr("pass it as an argument"));
  EXPECT_THAT(r.output, HasSubstr("mul a 3"));
  EXPECT_THAT(r.output, HasSubstr("mul a 2"));
  EXPECT_THAT(r.output, HasSubstr("jit_environment_test.cpp:"));
}

TEST(CheckCaptures, FindsAnotherArray) {
  const ChildResult r = in_child({{"SHMAP_CHECK_CAPTURES", "1"}}, [] {
    Array w = arange(3);
    const auto f = jit([&](Array x) { return x * w; });
    for (int k = 0; k < 3; ++k) f(ones({3}));
    w = w + 1;
    f(ones({3}));
  });
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("captured array 0 of type f32[3]"));
  EXPECT_THAT(r.output, HasSubstr("pass it as an argument"));
}

TEST(CheckCaptures, LetsTheSamePass) {
  const ChildResult r = in_child({{"SHMAP_CHECK_CAPTURES", "1"}}, [] {
    const Array w = arange(8);
    const auto inner = jit([](Array x) { return sin(x); });
    const auto f = jit(shard_map(
        [&](Array x) {
          return psum(inner(x) * w[0] + array<float>({1, 2}, {2})[1], "i");
        },
        mesh8(), P("i"), P()));
    for (int k = 0; k < 4; ++k) f(ones({8})).block_until_ready();
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output, "");
}

TEST(CheckCaptures, IsOffByDefault) {
  const ChildResult r = in_child({}, [] {
    float factor = 2;
    const auto f = jit([&](Array x) { return x * factor; });
    f(ones({3}));
    factor = 3;
    if (f(ones({3})).to_vector<float>()[0] != 2) throw Error("traced again");
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
}

struct Scaled {
  Array x;
  int factor;
};

TEST(ExplainRetrace, SaysWhatChanged) {
  const ChildResult r = in_child({{"SHMAP_EXPLAIN_RETRACE", "1"}}, [] {
    const auto f = jit([](Scaled s, Array y) { return s.x * s.factor + y; });
    const Array x = zeros({4});
    f(Scaled{x, 1}, x);
    f(Scaled{x, 1}, x);
    f(Scaled{astype(x, i32), 1}, x);
    f(Scaled{x, 2}, x);
    f(Scaled{x, 2}, sum(x));
    const auto g = jit([](Array x) { return x + 1.f; });
    g(x);
    g(device_put(x, NamedSharding(mesh8(), P())));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
  std::vector<std::string> lines;
  std::istringstream text(r.output);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  int heads = 0;
  for (const std::string& line : lines) heads += line.rfind("shmap: jit", 0) == 0;
  EXPECT_EQ(heads, 6) << r.output;
  EXPECT_THAT(r.output, HasSubstr("jit_environment_test.cpp:"));
  EXPECT_THAT(r.output, HasSubstr("is traced: its first call\n"));
  EXPECT_THAT(
      r.output,
      HasSubstr("is traced again:\n  args[0].field(0) is i32[4] now, and was f32[4] before\n"));
  EXPECT_THAT(r.output, HasSubstr("  static members or sizes of containers differ\n"));
  EXPECT_THAT(r.output, HasSubstr("  args[1] is f32[] "));
  EXPECT_THAT(r.output, HasSubstr("P()) now, and was f32[4] (not placed) before\n"));
}

TEST(Dump, WritesAFileForEachProgram) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("shmap_dump_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const ChildResult r = in_child({{"SHMAP_DUMP", folder.string()}}, [] {
    const auto f =
        jit(shard_map([](Array x) { return psum(tanh(x * 2 + 1), "i"); }, mesh8(), P("i"), P()));
    for (int k = 0; k < 3; ++k) f(ones({8}));
    f(ones({16}));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    ++files;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_THAT(text.str(), HasSubstr("traced:\n{ lambda a:f32["));
    EXPECT_THAT(text.str(), HasSubstr("shard_map["));
    EXPECT_THAT(text.str(), HasSubstr("\nafter fuse:\n{ lambda a:f32["));
    EXPECT_THAT(text.str(), HasSubstr("planned:\n{ lambda a:f32["));
    EXPECT_THAT(text.str(), HasSubstr("fused["));
    EXPECT_THAT(text.str(), HasSubstr("plan on Mesh"));
  }
  EXPECT_EQ(files, 2);
  std::filesystem::remove_all(folder);
  const ChildResult none =
      in_child({{"SHMAP_DUMP", "/no/such/folder"}}, [] { jit([](Array x) { return x; })(1.f); });
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.output, HasSubstr("SHMAP_DUMP: cannot write /no/such/folder/"));
}

TEST(JitCache, KeepsTheProgramsThatWereCalledLast) {
  const ChildResult r = in_child({{"SHMAP_JIT_CACHE", "3"}}, [] {
    int traces = 0;
    const auto f = jit([&](Array x) {
      ++traces;
      return x + 1;
    });
    const auto traced_by = [&](int n) {
      const int before = traces;
      f(zeros({n}));
      return traces - before;
    };
    for (int n : {1, 2, 3}) traced_by(n);
    std::string seen;
    for (int n : {1, 2, 3, 1, 4, 1, 3, 2, 1, 3, 4})
      seen += std::to_string(n) + (traced_by(n) ? "t " : " ");
    if (seen != "1 2 3 1 4t 1 3 2t 1 3 4t ") throw Error(seen);
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
}

// Calls with ever new shapes: dropped plans give their memory back, while their last calls may
// still be queued.
TEST(JitCache, IsOfBoundedMemory) {
  const ChildResult r = in_child({{"SHMAP_JIT_CACHE", "4"}, {"SHMAP_DEVICES", "cpu:8/8"}}, [] {
    const auto f = jit(shard_map([](Array x) { return psum(sort(x * 2.f), "i") + sort(x); },
                                 mesh8(), P("i"), P("i")));
    std::vector<std::int64_t> held;
    float last = 0;
    for (int n = 1; n <= 200; ++n) {
      const Array x =
          device_put(full({8 * (1000 + n)}, static_cast<float>(n)), NamedSharding(mesh8(), P("i")));
      Array y;
      for (int call = 0; call < 3; ++call) y = f(x);
      if (n % 20 == 0) last = y[8].item<float>();
      y = Array();
      if (n == 10 || n == 200) held.push_back(test::bytes_in_use().at(3));
    }
    if (last != 17.f * 200) throw Error("a wrong value: " + std::to_string(last));
    if (held[1] > 2 * held[0])
      throw Error("grew from " + std::to_string(held[0]) + " to " + std::to_string(held[1]));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output;
}

TEST(CheckNans, NamesTheOpUnderJit) {
  const ChildResult r = in_child({{"SHMAP_CHECK_NANS", "1"}}, [] {
    const auto f =
        jit(shard_map([](Array x) { return psum(log(x) * 2, "i"); }, mesh8(), P("i"), P()));
    f(ones({8})).block_until_ready();
    f(ones({8})).block_until_ready();
    f(ones({8}) - 2).block_until_ready();
  });
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("NaN in the result of log (op "));
  EXPECT_THAT(r.output, HasSubstr("jit_environment_test.cpp:"));
}

// Operations that jit would fuse are checked one by one: the first with a NaN is named, with its
// line.
TEST(CheckNans, NamesOneOfSeveralThatWouldBeFused) {
  const int log_line = __LINE__ + 3;
  const ChildResult r = in_child({{"SHMAP_CHECK_NANS", "1"}}, [] {
    const auto f = jit([](Array x) {
      const Array y = log(x);
      const Array z = y + 1.f;
      return z * 2.f;
    });
    f(ones({64}));
    f(ones({64}) - 2.f).block_until_ready();
  });
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("NaN in the result of log (op "));
  EXPECT_THAT(r.output, HasSubstr("jit_environment_test.cpp:" + std::to_string(log_line)));
}

}  // namespace
}  // namespace shmap
