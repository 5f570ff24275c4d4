// shmap-test: devices
// Copies between memory spaces that a link makes, in place of tasks (DeviceOps::start_space_copy).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/device/runtime.h"
#include "core/runtime/device_ops.h"
#include "tests/collectives/blocks.h"

namespace shmap::test {
namespace {

// A link that needs 2 ms for each copy, on a thread of its own; all copies run side by side.
class Link {
 public:
  Link() {
    the_link = this;
    ops().start_space_copy = start;
  }
  ~Link() {
    ops().start_space_copy = nullptr;
    for (std::thread& t : threads_) t.join();
  }
  int copies() const { return copies_; }
  bool breaks = false;  // copies fail while they are under way

 private:
  static DeviceOps& ops() { return device_ops(DeviceKind::cpu); }
  static void start(const SpaceCopy& copy, TaskEnd* end) {
    Link& link = *the_link;
    EXPECT_NE(copy.from, copy.to);
    ++link.copies_;
    const auto carry = [copy, breaks = link.breaks] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::memcpy(copy.dst, copy.src, static_cast<std::size_t>(copy.bytes));
      if (breaks) throw std::runtime_error("the link broke");
    };
    if (end == nullptr) return carry();
    const std::lock_guard lock(link.mutex_);
    link.threads_.emplace_back([carry, end] {
      std::exception_ptr error;
      try {
        carry();
      } catch (...) {
        error = std::current_exception();
      }
      end->end(error);
    });
  }
  static inline Link* the_link = nullptr;
  std::atomic<int> copies_{0};
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

// Whether each device is in a memory space of its own, on a CPU.
bool each_has_a_space() {
  const auto& devices = runtime().local_devices();
  return runtime().backend().kind() == DeviceKind::cpu && devices.size() == 8 &&
         devices[0].space != devices[1].space;
}

std::vector<std::pair<int, int>> ring() {
  std::vector<std::pair<int, int>> perm;
  for (int r = 0; r < 8; ++r) perm.emplace_back(r, (r + 1) % 8);
  return perm;
}

// Each block passes through two links, and a product of its values is computed beside it.
Array two_steps(Array x) {
  const Array once = ppermute(x, "i", ring());
  const Array square = x * x;
  return ppermute(once, "i", ring()) + square;
}

std::vector<float> after_two_steps() {
  std::vector<float> want(32);
  for (std::size_t k = 0; k < want.size(); ++k)
    want[k] = float((k + 32 - 8) % 32) + float(k) * float(k);
  return want;
}

Array blocks() { return device_put(arange(32, f32), NamedSharding(make_mesh({8}, "i"), P("i"))); }

TEST(SpaceLink, CarriesPermutationsEagerlyAndInReplays) {
  if (!each_has_a_space()) GTEST_SKIP() << "for devices with memory spaces of their own";
  const Array x = blocks();
  const auto f = shard_map(two_steps, make_mesh({8}, "i"), P("i"), P("i"));
  const auto replayed = jit(f);
  Link link;
  EXPECT_EQ(f(x).to_vector<float>(), after_two_steps());
  EXPECT_EQ(link.copies(), 16);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(replayed(x).to_vector<float>(), after_two_steps()) << "call " << call;
  EXPECT_EQ(link.copies(), 16 * 4);
}

TEST(SpaceLink, CarriesBroadcasts) {
  if (!each_has_a_space()) GTEST_SKIP() << "for devices with memory spaces of their own";
  const auto f = shard_map([](Array x) { return broadcast_from(x, "i", 3); }, make_mesh({8}, "i"),
                           P("i"), P());
  Link link;
  EXPECT_EQ(f(blocks()).to_vector<float>(), (std::vector<float>{12, 13, 14, 15}));
  EXPECT_EQ(link.copies(), 7);
}

TEST(SpaceLink, AnErrorOnTheWayFailsWhatReadsTheBlock) {
  if (!each_has_a_space()) GTEST_SKIP() << "for devices with memory spaces of their own";
  const Array x = blocks();
  const auto f = shard_map(two_steps, make_mesh({8}, "i"), P("i"), P("i"));
  {
    Link link;
    link.breaks = true;
    try {
      (void)f(x).to_vector<float>();
      FAIL() << "the link broke, and the result was readable";
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find("the link broke"), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(f(x).to_vector<float>(), after_two_steps());
}

}  // namespace
}  // namespace shmap::test
