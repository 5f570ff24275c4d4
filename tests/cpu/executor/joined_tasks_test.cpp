// Two tasks that an executor runs as one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu/device/backend.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kLarge = 10'000'000;  // ns: such a task is queued

std::unique_ptr<CpuBackend> make_backend() {
  ExecutorOptions options;
  options.mode = Mode::async;
  options.workers = 1;  // what runs, runs in a known order
  return std::make_unique<CpuBackend>(DeviceSpec::parse("cpu:4"), 0, 0, options, -1);
}

// A task that notes its name, or the two names where it was joined.
struct Noted {
  std::string name;
  std::vector<std::string>& order;
  bool joins = true;  // or refuses to
  bool throws = false;

  Task task(const void* makes, const void* takes) {
    Task t;
    t.name = "noted";
    t.args = this;
    t.cost_ns = kLarge;
    t.makes = makes;
    t.takes = takes;
    t.run = [](void* self, const TaskContext&) {
      static_cast<Noted*>(self)->order.push_back(static_cast<Noted*>(self)->name);
    };
    if (takes == nullptr) return t;
    t.join = [](void* self, const Task& before, const TaskContext&) {
      auto& noted = *static_cast<Noted*>(self);
      if (!noted.joins) return false;
      if (noted.throws) throw ValueError("no sum");
      noted.order.push_back(static_cast<Noted*>(before.args)->name + "+" + noted.name);
      return true;
    };
    return t;
  }
};

struct Gate {
  std::atomic<bool> open{false};
  Task task() {
    Task t;
    t.name = "gate";
    t.args = this;
    t.cost_ns = kLarge;
    t.run = [](void* self, const TaskContext&) {
      while (!static_cast<Gate*>(self)->open) std::this_thread::yield();
    };
    return t;
  }
};

class JoinedTasks : public ::testing::Test {
 protected:
  Stream* stream(int device) {
    return backend_->devices()[static_cast<std::size_t>(device)].compute;
  }
  Event enqueue(int device, const Task& task, std::vector<Event> waits = {}) {
    std::lock_guard lock(backend_->submit_mutex());
    return stream(device)->enqueue(task, waits);
  }

  std::unique_ptr<CpuBackend> backend_ = make_backend();
  std::vector<std::string> order_;
  int memory_[2] = {};
  Noted product_{"product", order_}, sum_{"sum", order_}, other_{"other", order_};
  Gate gate_;  // on device 0: holds the one worker until all is queued
};

TEST_F(JoinedTasks, RunAsOneWhereNothingElseIsWaitedFor) {
  enqueue(0, gate_.task());
  const Event before = enqueue(1, other_.task(nullptr, nullptr));
  const Event product = enqueue(1, product_.task(memory_, nullptr));
  const Event sum = enqueue(1, sum_.task(nullptr, memory_), {product, before});
  gate_.open = true;
  sum.wait();
  EXPECT_TRUE(product.done());
  backend_->synchronize();
  EXPECT_THAT(order_, ElementsAre("other", "product+sum"));
}

TEST_F(JoinedTasks, WaitForWhatTheSecondStillNeedsWhileThereIsOtherWork) {
  const Event gate = enqueue(0, gate_.task());
  const Event product = enqueue(1, product_.task(memory_, nullptr), {gate});
  const Event needed = enqueue(2, other_.task(nullptr, nullptr), {gate});
  enqueue(1, sum_.task(nullptr, memory_), {product, needed});
  gate_.open = true;
  backend_->synchronize();
  EXPECT_THAT(order_, ElementsAre("other", "product+sum"));
}

TEST_F(JoinedTasks, DoNotWaitForWhatOnlyTheyLetRun) {
  // `other` runs after the product, and the sum after `other`.
  enqueue(0, gate_.task());
  const Event product = enqueue(1, product_.task(memory_, nullptr));
  const Event needed = enqueue(2, other_.task(nullptr, nullptr), {product});
  enqueue(1, sum_.task(nullptr, memory_), {product, needed});
  gate_.open = true;
  backend_->synchronize();
  EXPECT_THAT(order_, ElementsAre("product", "other", "sum"));
}

TEST_F(JoinedTasks, OfAnotherResultRunApart) {
  enqueue(0, gate_.task());
  const Event product = enqueue(1, product_.task(memory_, nullptr));
  enqueue(1, sum_.task(nullptr, memory_ + 1), {product});
  gate_.open = true;
  backend_->synchronize();
  EXPECT_THAT(order_, ElementsAre("product", "sum"));
}

TEST_F(JoinedTasks, RunApartWhereTheSecondRefuses) {
  sum_.joins = false;
  enqueue(0, gate_.task());
  const Event product = enqueue(1, product_.task(memory_, nullptr));
  enqueue(1, sum_.task(nullptr, memory_), {product});
  gate_.open = true;
  backend_->synchronize();
  EXPECT_THAT(order_, ElementsAre("product", "sum"));
}

TEST_F(JoinedTasks, FailTogether) {
  sum_.throws = true;
  enqueue(0, gate_.task());
  const Event product = enqueue(1, product_.task(memory_, nullptr));
  const Event sum = enqueue(1, sum_.task(nullptr, memory_), {product});
  gate_.open = true;
  EXPECT_THROW(sum.wait(), ValueError);
  EXPECT_TRUE(product.failed());
  EXPECT_TRUE(sum.failed());
  EXPECT_TRUE(order_.empty());
}

TEST_F(JoinedTasks, RunAsOneInEachRunOfAGraph) {
  Ref<Graph> graph;
  {
    std::lock_guard lock(backend_->submit_mutex());
    backend_->begin_capture();
    const Event product = stream(1)->enqueue(product_.task(memory_, nullptr), {});
    const Event after[] = {product};
    stream(1)->enqueue(sum_.task(nullptr, memory_), after);
    graph = backend_->end_capture();
  }
  for (int i = 0; i < 2; ++i) {
    std::lock_guard lock(backend_->submit_mutex());
    graph->launch({}, {});
  }
  backend_->synchronize();
  EXPECT_THAT(order_, ElementsAre("product+sum", "product+sum"));
}

}  // namespace
}  // namespace shmap::cpu
