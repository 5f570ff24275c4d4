// shmap-test: devices
// Kernels that fail and bodies that throw: the error comes once, names the line, and leaves the
// arguments and the library as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/fault.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"
#include "core/runtime/kernel.h"
#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/error_text.h"
#include "tests/support/memory_use.h"

namespace shmap {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}
Array split() { return device_put(reshape(arange(64, i32), {8, 8}), {mesh(), P("i", "j")}); }
std::string here(int line) { return "faults_test.cpp:" + std::to_string(line); }

TEST(KernelFault, OfAnOpNamesOpDevicePositionAndLine) {
  const Array x = split();
  const Ints given = x.to_vector<std::int32_t>();
  const std::vector<std::int64_t> held = test::bytes_in_use();
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int line = __LINE__ + 4;
    test::expect_error<DeviceError>(
        [&] {
          fault::Scoped fault("kernel@3#1:throw");
          const Array y = x + 1;
          y.block_until_ready();
        },
        {"fault injected at kernel of device 3", "add (op ", "Device(id=3)",
         "at mesh coordinates (i, j,) = (1, 1,)", here(line).c_str()});
    ASSERT_EQ(test::bytes_in_use(), held);
  }
  EXPECT_EQ(x.to_vector<std::int32_t>(), given);
  EXPECT_EQ(sum(x + 1).item<std::int32_t>(), 63 * 32 + 64);
}

TEST(KernelFault, InABodyUnblocksEveryDevice) {
  const Array x = split();
  const Ints given = x.to_vector<std::int32_t>();
  const int line = __LINE__ + 1;
  const auto body = [](Array b) { return psum(b * 2, axes("i", "j")) + psum(b, "i"); };
  const auto f = shard_map(body, mesh(), {P("i", "j")}, P(none, "j"));
  const Ints wanted = f(x).to_vector<std::int32_t>();
  const std::vector<std::int64_t> held = test::bytes_in_use();
  for (int device = 0; device < 8; ++device) {
    for (int nth = 1; nth <= 2; ++nth) {
      bool failed = false;
      try {
        runtime().backend().synchronize();
        fault::Scoped fault("kernel@" + std::to_string(device) + "#" + std::to_string(nth) +
                            ":throw");
        f(x).block_until_ready();
      } catch (const DeviceError& e) {
        failed = true;
        EXPECT_THAT(e.what(), HasSubstr("Device(id=" + std::to_string(device) + ")"));
        EXPECT_THAT(e.what(), HasSubstr(here(line)));
      }
      EXPECT_TRUE(failed || nth == 2) << "device " << device;  // the first kernel runs everywhere
      ASSERT_EQ(test::bytes_in_use(), held);
      EXPECT_EQ(f(x).to_vector<std::int32_t>(), wanted);
    }
  }
  EXPECT_EQ(x.to_vector<std::int32_t>(), given);
}

TEST(KernelFault, TravelsToWhatDependsOnIt) {
  const Array x = split();
  runtime().backend().synchronize();  // kernels of tests before, which nobody waited for
  try {
    fault::Scoped fault("kernel@5#1:throw");
    const Array y = x + 1;
    const Array z = matmul(y, x);
    z.to_vector<std::int32_t>();
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("add (op "));
    EXPECT_THAT(e.what(), HasSubstr("Device(id=5)"));
  }
  EXPECT_NO_THROW(runtime().backend().synchronize()) << "reported twice";
}

TEST(KernelFault, PoisonsOneDeviceWithNan) {
  const Array x = device_put(ones({8, 2}), {mesh(), P("i", "j")});
  fault::Scoped fault("kernel@2#1:nan");
  const Array y = x + 1;
  EXPECT_EQ(sum(astype(isnan(y), i32)).item<std::int32_t>(), 1);
  EXPECT_EQ(sum(astype(isnan(x), i32)).item<std::int32_t>(), 0);
}

// A body that throws, before and after a collective, 1000 times each (of several processes, whose
// collectives take longer, 100 times).
template <class Thrown, class Throw>
void expect_body_throws(Throw throw_it) {
  const Array x = split();
  const Ints given = x.to_vector<std::int32_t>();
  for (const bool after : {false, true}) {
    const auto f = shard_map(
        [&](Array b) {
          Array y = b + 1;
          if (!after) throw_it();
          y = psum(y, "i");
          if (after) throw_it();
          return y;
        },
        mesh(), {P("i", "j")}, P(none, "j"));
    EXPECT_THROW(f(x), Thrown);
    const std::vector<std::int64_t> held = test::bytes_in_use();
    const int times = process_count() > 1 ? 100 : 1000;
    for (int k = 0; k < times; ++k) EXPECT_THROW(f(x), Thrown);
    EXPECT_EQ(test::bytes_in_use(), held);
  }
  EXPECT_EQ(x.to_vector<std::int32_t>(), given);
  EXPECT_EQ(sum(x).item<std::int32_t>(), 63 * 32);
}

TEST(BodyThrows, AStandardException) {
  expect_body_throws<std::runtime_error>([] { throw std::runtime_error("of the body"); });
}
struct NoException {};
TEST(BodyThrows, SomethingElse) {
  expect_body_throws<NoException>([] { throw NoException(); });
}

// A primitive of a test, whose kernel throws.
void same_type(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }
template <class Thrown>
const Primitive& thrower() {
  static const Primitive primitive = [] {
    Primitive p;
    p.name = "thrower";
    p.abstract_eval = same_type;
    for (DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
      p.kernel(kind).run = [](const KernelCall&) { throw Thrown(); };
    return p;
  }();
  return primitive;
}
struct Odd : std::runtime_error {
  Odd() : std::runtime_error("an odd thing") {}
};

template <class Seen, class Thrown>
void expect_kernel_throws(const char* text) {
  const Array x = split();
  const Ints given = x.to_vector<std::int32_t>();
  const auto f = shard_map(
      [](Array b) {
        return psum(bind(thrower<Thrown>(), b + 1, no_params, SourceLine::current()), "i");
      },
      mesh(), {P("i", "j")}, P(none, "j"));
  const auto fails = [&] {
    try {
      f(x).block_until_ready();
    } catch (const Seen& e) {
      if constexpr (std::is_base_of_v<std::exception, Seen>) {
        EXPECT_THAT(e.what(), HasSubstr(text));
      }
      return true;
    }
    return false;
  };
  EXPECT_TRUE(fails());
  const std::vector<std::int64_t> held = test::bytes_in_use();
  for (int k = 0; k < 1000; ++k) ASSERT_TRUE(fails());
  EXPECT_EQ(test::bytes_in_use(), held);
  EXPECT_EQ(x.to_vector<std::int32_t>(), given);
  EXPECT_EQ(sum(x).item<std::int32_t>(), 63 * 32);
}

TEST(KernelThrows, AStandardException) {
  expect_kernel_throws<DeviceError, Odd>("an odd thing\n  in thrower (op ");
}
TEST(KernelThrows, SomethingElse) { expect_kernel_throws<NoException, NoException>(""); }

// The failure of a reader does not affect a later writer of the same memory.
TEST(KernelThrows, FailsOnlyWhatReadsItsResult) {
  const auto f = shard_map(
      [](Array b) {
        b = matmul(b + 1, b);
        const Array failing = bind(thrower<Odd>(), b, no_params, SourceLine::current());
        b = std::move(b) * 2;  // in place, where nobody reads it any more
        return std::pair(b, failing);
      },
      mesh(), {P("i", "j")}, P("i", "j"));
  const Array x = device_put(full({1024, 512}, 1), {mesh(), P("i", "j")});
  for (int k = 0; k < 20; ++k) {
    const auto [written, failing] = f(x);
    EXPECT_EQ(min(written).item<std::int32_t>(), 2 * 2 * 256);
    EXPECT_THROW(failing.block_until_ready(), DeviceError);
    EXPECT_THROW((failing + written).block_until_ready(), DeviceError);
  }
}

// Values that outlive the body which made them.
TEST(Escaped, AfterTheBody) {
  const Array x = split();
  Array kept;
  shard_map([&](Array b) { return kept = b + 1; }, mesh(), {P("i", "j")}, P("i", "j"))(x);
  const int line = __LINE__ + 1;
  test::expect_error<TypeError>([&] { kept + 1; },
                                {"add", "shard_map", "eager", here(line).c_str()});
  test::expect_error<TypeError>([&] { kept.to_vector<std::int32_t>(); }, {"shard_map", "eager"});
  test::expect_error<TypeError>([&] { device_put(kept, {mesh(), P()}); }, {"shard_map", "eager"});
  test::expect_error<TypeError>([&] { sum(x) + kept; }, {"shard_map", "eager"});
  EXPECT_EQ(sum(x).item<std::int32_t>(), 63 * 32);
}

TEST(Escaped, IntoAnotherBody) {
  const Array x = split();
  Array kept;
  shard_map([&](Array b) { return kept = b + 1; }, mesh(), {P("i", "j")}, P("i", "j"))(x);
  test::expect_error<TypeError>(
      [&] { shard_map([&](Array b) { return b + kept; }, mesh(), {P("i", "j")}, P("i", "j"))(x); },
      {"add", "shard_map", "faults_test.cpp"});
  test::expect_error<TypeError>(
      [&] {
        shard_map([&](Array b) { return b + psum(kept, "i"); }, mesh(), {P("i", "j")},
                  P("i", "j"))(x);
      },
      {"psum", "shard_map", "faults_test.cpp"});
  test::expect_error<TypeError>(
      [&] { shard_map([&](Array) { return kept; }, mesh(), {P("i", "j")}, P("i", "j"))(x); },
      {"shard_map"});
  test::expect_error<TypeError>(
      [&] { shard_map([](Array b) { return b; }, mesh(), {P("i", "j")}, P("i", "j"))(kept); },
      {"args[0]", "shard_map"});
}

TEST(Escaped, ToAnotherThread) {
  const Array x = split();
  const auto f = shard_map(
      [&](Array b) {
        std::string error;
        std::thread other([&] {
          try {
            b + 1;
          } catch (const TypeError& e) {
            error = e.what();
          }
        });
        other.join();
        EXPECT_THAT(error, HasSubstr("shard_map"));
        EXPECT_THAT(error, HasSubstr("eager"));
        return b + 1;
      },
      mesh(), {P("i", "j")}, P("i", "j"));
  EXPECT_EQ(sum(f(x)).item<std::int32_t>(), 63 * 32 + 64);
}

}  // namespace
}  // namespace shmap
