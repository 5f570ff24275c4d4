// shmap-test: devices
// The deleter of a DLPack tensor may use arrays, wherever the last array of the tensor's memory
// ends: in a function that is traced, in a call of a jitted function, beside a thread that
// captures.
#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "core/device/backend.h"
#include "core/ir/trace.h"
#include "shmap/dlpack.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

// What the deleters saw.
struct Log {
  std::atomic<int> calls{0}, in_a_trace{0}, in_a_capture{0}, wrong{0};
  // Memory that is given up while work on it is pending is looked after when other memory is
  // allocated.
  bool come_to(int n) const {
    for (int ms = 0; ms < 20'000 && calls < n; ++ms) {
      const Array z = ones({1 << 16}) * 2.f;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return calls == n;
  }
};

// An array over memory whose deleter notes where it is called, and then calls `use`, whose result
// must be 2.
struct Tensor {
  static Array array(Log& log, std::function<Array()> use, std::int64_t elements = 16) {
    auto* const self = new Tensor{log, std::move(use), {elements}, {}};
    self->tensor.dl_tensor = {memory(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, self->shape, nullptr, 0};
    self->tensor.manager_ctx = self;
    self->tensor.deleter = [](DLManagedTensor* t) {
      auto* const owner = static_cast<Tensor*>(t->manager_ctx);
      Log& log = owner->log;
      log.in_a_trace += trace_depth() != 0;
      log.in_a_capture += capturing();
      log.wrong += owner->use().to_vector<float>()[0] != 2.f;
      delete owner;
      ++log.calls;
    };
    return from_dlpack(&self->tensor);
  }
  static float* memory() {
    alignas(64) static float all[1 << 16] = {};
    return all;
  }
  Log& log;
  std::function<Array()> use;
  std::int64_t shape[1];
  DLManagedTensor tensor;
};

class ReleaseFunctions : public testing::Test {
 protected:
  void SetUp() override {
    if (devices()[0].kind() != DeviceKind::cpu)
      GTEST_SKIP() << "DLPack tensors here are of host memory: CPU devices only";
  }
  static Array sum_of_ones() { return ones({8}) + 1.f; }
  Log log_;
};

TEST_F(ReleaseFunctions, MayUseArraysWhereAFunctionIsTraced) {
  Array held;
  const std::function<Array(Array)> body = [&](Array x) {
    held = Array();
    return x * 2.f;
  };
  const Mesh mesh = make_mesh({1}, "i");
  const std::function<Array(Array)> calls[] = {
      jit(body), shard_map(body, mesh, P("i"), P("i")),
      [&](Array x) { return grad([&](Array v) { return sum(body(v)); })(x); },
      [&](Array x) { return vmap(body)(x); },
      [&](Array x) {
        make_jaxpr(body)(x);
        return x;
      }};
  int n = 0;
  for (const auto& call : calls) {
    held = Tensor::array(log_, sum_of_ones);
    call(ones({8})).block_until_ready();
    EXPECT_TRUE(log_.come_to(++n)) << n;
  }
  EXPECT_EQ(log_.in_a_trace, 0);
  EXPECT_EQ(log_.wrong, 0);
}

TEST_F(ReleaseFunctions, MayCallTheJittedFunctionThatGivesTheMemoryUp) {
  const auto f = jit([](Array a) { return cos(a * 0.f) * 2.f; });
  const std::function<Array()> again = [&] { return f(ones({16})); };
  for (int call = 1; call <= 6; ++call) {
    Array a = Tensor::array(log_, again);
    f(std::move(a)).block_until_ready();
    a = Array();
    EXPECT_TRUE(log_.come_to(call)) << call;
  }
  EXPECT_EQ(log_.wrong, 0);
}

// A deleter that one thread defers is not called by another one that captures.
TEST_F(ReleaseFunctions, BesideAThreadThatCaptures) {
  constexpr int kTensors = 4000;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    const Array x = ones({64});
    for (float n = 1; !stop; ++n) {
      const auto f = jit([n](Array v) {
        for (int k = 0; k < 40; ++k) v = cumsum(v, 0) * n;
        return v;
      });
      for (int call = 0; call < 2; ++call) wrong += f(x).size() != 64;
    }
  });
  Array big;
  for (int i = 0; i < kTensors; ++i) {
    Array w = Tensor::array(log_, sum_of_ones, 1 << 16);
    Array y = sin(w);
    w = Array();
    big = y;
    const Array z = ones({32}) * static_cast<float>(i);
  }
  big.block_until_ready();
  big = Array();
  stop = true;
  other.join();
  EXPECT_TRUE(log_.come_to(kTensors)) << log_.calls;
  EXPECT_EQ(log_.in_a_capture, 0);
  EXPECT_EQ(log_.wrong, 0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace shmap
