// shmap-test: devices
// Collectives whose work fails: the error comes to the caller once, names the collective, the line
// and the cause, and leaves the arguments and the library as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/fault.h"
#include "core/device/runtime.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/memory_use.h"

namespace shmap::test {
namespace {

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}

std::string text_of(const Device& d) { return "Device(id=" + std::to_string(d.id()) + ")"; }

TEST(CollectiveFaults, NameTheCollectiveItsAxesAndTheDevice) {
  const Device first = local_devices().front();  // of an even id
  const std::string first_at =
      "at mesh coordinates (i, j,) = (" + std::to_string(first.id() / 2) + ", 0,)";
  const Array x = device_put(arange(256), {mesh(), P(axes("i", "j"))});
  const std::vector<float> given = x.to_vector<float>();
  const std::vector<std::pair<std::string, std::function<Array(Array)>>> calls = {
      {"psum",
       [](Array b) {
         return psum(b, {"i", "j"});
       }},
      {"pmax",
       [](Array b) {
         return pmax(b, {"i", "j"});
       }},
      {"all_gather",
       [](Array b) {
         return all_gather(b, {"i", "j"});
       }},
      {"psum_scatter",
       [](Array b) {
         return psum_scatter(b, {"i", "j"}, {.tiled = true});
       }},
      {"all_to_all", [](Array b) {
         return all_to_all(b, {"i", "j"}, 0, 0, {.tiled = true});
       }}};
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    const auto f = shard_map([call = call](Array b) { return call(b) + 1.f; }, mesh(),
                             P(axes("i", "j")), P(axes("i", "j")));
    const std::vector<float> wanted = f(x).to_vector<float>();
    const std::vector<std::int64_t> held = bytes_in_use();
    for (int attempt = 0; attempt < 20; ++attempt) {
      expect_error<CollectiveError>(
          [&] {
            fault::Scoped fault("collective@0#1:throw");
            f(x).to_vector<float>();
          },
          {"fault injected at collective", ("the collective " + name + " (op ").c_str(),
           text_of(first).c_str(), first_at.c_str(), "over mesh axes ('i', 'j')",
           "collective_faults_test.cpp"});
      EXPECT_NO_THROW(runtime().backend().synchronize()) << "reported twice";
      ASSERT_EQ(bytes_in_use(), held);
    }
    EXPECT_EQ(f(x).to_vector<float>(), wanted);
  }
  EXPECT_EQ(x.to_vector<float>(), given);
}

// If an operand failed, the error names the operation that failed first, not the collective.
TEST(CollectiveFaults, ErrorsOfOperandsComeThrough) {
  const std::size_t failing = 5 * local_devices().size() / 8;
  const Array x = device_put(arange(256), {mesh(), P(axes("i", "j"))});
  try {
    fault::Scoped fault("kernel@" + std::to_string(failing) + "#1:throw");
    shard_map(
        [](Array b) {
          return psum(b * 2.f, {"i", "j"});
        },
        mesh(), P(axes("i", "j")), P())(x)
        .to_vector<float>();
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("mul (op "));
    EXPECT_THAT(e.what(), ::testing::HasSubstr(text_of(local_devices()[failing])));
  }
  EXPECT_NO_THROW(runtime().backend().synchronize()) << "reported twice";
}

// The n-th allocation fails, for every n of a body of collectives.
TEST(CollectiveFaults, EveryAllocationMayFail) {
  const Array x = device_put(arange(512), {mesh(), P(axes("i", "j"))});
  const auto f = shard_map(
      [](Array b) {
        const Array y = psum_scatter(all_gather(b, "i", {.tiled = true}), "i", {.tiled = true});
        const Array z = ppermute(y, "j", {{0, 1}}) + all_to_all(b, "j", 0, 0, {.tiled = true});
        return pmax(z + astype(axis_index("i"), f32), "i") + broadcast_from(psum(b, "i"), "j", 1);
      },
      mesh(), P(axes("i", "j")), P("j"));
  const std::vector<float> wanted = f(x).to_vector<float>();
  const std::vector<std::int64_t> held = bytes_in_use();
  int failures = 0;
  for (int n = 1;; ++n) {
    bool failed = false;
    try {
      fault::Scoped fault("allocate#" + std::to_string(n) + ":oom");
      f(x).block_until_ready();
    } catch (const OutOfMemory&) {
      failed = true;
    }
    runtime().backend().synchronize();
    ASSERT_EQ(bytes_in_use(), held) << "allocation " << n;
    ASSERT_EQ(f(x).to_vector<float>(), wanted) << "allocation " << n;
    if (!failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace shmap::test
