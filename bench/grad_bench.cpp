// Rows of derivatives: gradients under jit on 8 devices, and the time to trace them; attention with
// its gradient on one.
// Every gradient is checked: against plain backpropagation in double, or against the slope of the
// loss, in double, along random directions of the weights and of the input.
//
//   grad_bench --memory   prints the bytes that the layer's gradient took at their peak, under jit:
//                         arguments, results, everything between; one memory space
#include <shmap/shmap.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/support/first_calls.h"
#include "bench/support/long_attention.h"
#include "bench/support/peak_memory.h"
#include "bench/support/rows.h"
#include "bench/support/transformer_loss.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;
using Values = std::vector<float>;
using Doubles = std::vector<double>;

// ------------------------------------------------------------------ a perceptron, data parallel

struct Layer {
  Array w, b;
};
struct Net {
  Layer first, second, last;
};

Array mlp_loss(Net net, Array x, Array target) {
  Array h = tanh(matmul(x, net.first.w) + net.first.b);
  h = tanh(matmul(h, net.second.w) + net.second.b);
  return mean(square(matmul(h, net.last.w) + net.last.b - target));
}

struct Mlp {
  static constexpr std::size_t kBatch = 1024;
  static constexpr std::size_t kSizes[] = {256, 512, 512, 64};
  Values w[3], b[3], x, target;

  Mlp() {
    for (std::size_t k = 0; k < 3; ++k) {
      w[k] = bench::random_floats(kSizes[k] * kSizes[k + 1], 10 + k);
      for (float& v : w[k]) v *= 0.1f;
      b[k] = bench::random_floats(kSizes[k + 1], 20 + k);
    }
    x = bench::random_floats(kBatch * kSizes[0], 30);
    target = bench::random_floats(kBatch * kSizes[3], 31);
  }
  Net net(const Mesh& mesh) const {
    const NamedSharding whole(mesh, P());
    const auto layer = [&](std::size_t k) {
      return Layer{device_put(array<float>(w[k], {kSizes[k], kSizes[k + 1]}), whole),
                   device_put(array<float>(b[k], {kSizes[k + 1]}), whole)};
    };
    return {layer(0), layer(1), layer(2)};
  }
  Array rows(const Values& values, std::size_t columns, const Mesh& mesh) const {
    return device_put(array<float>(values, {kBatch, columns}), NamedSharding(mesh, P("i")));
  }

  // The gradient of the first layer's weights, computed by hand.
  Doubles first_gradient() const {
    Doubles a[4];
    a[0].assign(x.begin(), x.end());
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t in = kSizes[k], out = kSizes[k + 1];
      a[k + 1].assign(kBatch * out, 0.0);
      for (std::size_t r = 0; r < kBatch; ++r) {
        double* y = &a[k + 1][r * out];
        for (std::size_t j = 0; j < out; ++j) y[j] = b[k][j];
        for (std::size_t i = 0; i < in; ++i)
          for (std::size_t j = 0; j < out; ++j) y[j] += a[k][r * in + i] * w[k][i * out + j];
        if (k < 2)
          for (std::size_t j = 0; j < out; ++j) y[j] = std::tanh(y[j]);
      }
    }
    Doubles bar(a[3].size());
    for (std::size_t n = 0; n < bar.size(); ++n)
      bar[n] = 2 * (a[3][n] - target[n]) / static_cast<double>(bar.size());
    for (std::size_t k = 3; k-- > 1;) {
      const std::size_t in = kSizes[k], out = kSizes[k + 1];
      Doubles before(kBatch * in, 0.0);
      for (std::size_t r = 0; r < kBatch; ++r) {
        for (std::size_t i = 0; i < in; ++i) {
          double s = 0;
          for (std::size_t j = 0; j < out; ++j) s += bar[r * out + j] * w[k][i * out + j];
          const double h = a[k][r * in + i];
          before[r * in + i] = s * (1 - h * h);
        }
      }
      bar = std::move(before);
    }
    const std::size_t in = kSizes[0], out = kSizes[1];
    Doubles g(in * out, 0.0);
    for (std::size_t r = 0; r < kBatch; ++r)
      for (std::size_t i = 0; i < in; ++i)
        for (std::size_t j = 0; j < out; ++j) g[i * out + j] += a[0][r * in + i] * bar[r * out + j];
    return g;
  }
};

Work mlp_grad() {
  auto t = std::make_shared<Mlp>();
  auto want = std::make_shared<Doubles>(t->first_gradient());
  const Mesh mesh = make_mesh({8}, {"i"});
  auto loss =
      shard_map([](Net net, Array x, Array target) { return pmean(mlp_loss(net, x, target), "i"); },
                mesh, {P(), P("i"), P("i")}, P());
  auto result = std::make_shared<Net>();
  auto call = [result, f = jit(value_and_grad(loss)), net = t->net(mesh),
               x = t->rows(t->x, Mlp::kSizes[0], mesh),
               target = t->rows(t->target, Mlp::kSizes[3], mesh)] {
    *result = Net();
    auto [value, gradient] = f(net, x, target);
    *result = gradient;
    for (const Layer* l : {&result->first, &result->second, &result->last}) {
      l->w.block_until_ready();
      l->b.block_until_ready();
    }
  };
  return {
      call, [=] { return bench::difference(result->first.w.to_vector<float>(), *want, 1e-6); }, {}};
}

// ------------------------------------------------------------------------- a long chain, traced

constexpr int kPairs = 500;

Work grad_1000() {
  auto latest = std::make_shared<std::optional<ClosedJaxpr>>();
  auto call = [latest] {
    // The function captures a value, so that each call traces it anew.
    int pairs = kPairs;
    *latest = make_jaxpr([pairs](Array x) {
      return grad([pairs](Array x) {
        Array y = x;
        for (int k = 0; k < pairs; ++k) y = sin(y) * x;
        return sum(y);
      })(x);
    })(ShapedArray({1024}, f32));
  };
  auto check = [latest]() -> std::string {
    const Values values = bench::random_floats(1024, 6);
    Doubles want;
    for (const float v : values) {
      double y = v, slope = 1;
      for (int k = 0; k < kPairs; ++k) {
        slope = std::cos(y) * slope * v + std::sin(y);
        y = std::sin(y) * v;
      }
      want.push_back(slope);
    }
    const std::vector<Array> out = eval_jaxpr(**latest, {array<float>(values, {1024})});
    return bench::difference(out.at(0).to_vector<float>(), want, 1e-3);
  };
  return {call, check, {}};
}

// ------------------------------------------------------------------------ the transformer layer

namespace layer = bench::transformer;
using layer::LayerLoss;
using layer::wait_for;

Work transformer_grad() {
  auto t = std::make_shared<LayerLoss>();
  auto result = std::make_shared<layer::Gradient>();
  auto call = [result, f = jit(grad<0, 1>(t->loss())), w = t->data.weights(), x = t->data.input()] {
    *result = {};
    auto [of_w, of_x] = f(w, x);
    *result = {of_w, of_x};
    wait_for(*result);
  };
  return {call, [=] { return t->check(result->of_w, result->of_x); }, {}};
}

// Times a first call until it returns; its work is queued by then, and awaited outside of the time.
// first_two: times two calls, the second of which captures the plan, until both results are there.
Work first_calls(bool first_two) {
  auto t = std::make_shared<LayerLoss>();
  auto result = std::make_shared<layer::Gradient>();
  auto time_batch = [=, w = t->data.weights(), x = t->data.input()](std::int64_t n) {
    double seconds = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      *result = {};
      auto f = jit([loss = t->loss()](layer::Layer w, Array x) { return grad<0, 1>(loss)(w, x); });
      const auto call = [&] {
        auto [of_w, of_x] = f(w, x);
        *result = {of_w, of_x};
      };
      seconds += first_two ? bench::seconds_of_two(call, [&] { wait_for(*result); })
                           : bench::seconds_of(call);
      wait_for(*result);
    }
    return seconds;
  };
  return {{}, [=] { return t->check(result->of_w, result->of_x); }, time_batch};
}

// ------------------------------------------------------------------- attention, on one device

// Written in operations, in which jit finds attention unless SHMAP_ATTENTION=0 is set.
Work attention_2048() {
  auto t = std::make_shared<bench::LongAttention>();
  auto result = std::make_shared<Array>();
  auto call = [result, f = jit(bench::LongAttention::result), q = t->operand(0), k = t->operand(1),
               v = t->operand(2)] {
    *result = Array();
    *result = f(q, k, v);
    result->block_until_ready();
  };
  return {call, [=] { return t->check_result(*result); }, {}};
}

Work attention_2048_grad() {
  auto t = std::make_shared<bench::LongAttention>();
  auto result = std::make_shared<std::tuple<Array, Array, Array>>();
  auto call = [result, f = jit(grad<0, 1, 2>(bench::LongAttention::loss)), q = t->operand(0),
               k = t->operand(1), v = t->operand(2)] {
    *result = {};
    *result = f(q, k, v);
    std::apply([](const auto&... bars) { (bars.block_until_ready(), ...); }, *result);
  };
  const auto check = [=] {
    const auto& [of_q, of_k, of_v] = *result;
    return t->check_gradient(of_q, of_k, of_v);
  };
  return {call, check, {}};
}

// Prints the peak bytes of all memory spaces over replays.
int print_memory() {
  const LayerLoss t;
  const layer::Layer w = t.data.weights();
  const Array x = t.data.input();
  const auto f = jit(grad<0, 1>(t.loss()));
  layer::Gradient result;
  const auto call = [&] {
    result = {};
    auto [of_w, of_x] = f(w, x);
    result = {of_w, of_x};
    wait_for(result);
  };
  return bench::print_peak_memory("transformer layer's gradient", call,
                                  [&] { return t.check(result.of_w, result.of_x); });
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8" : devices});
  if (argc > 1 && std::strcmp(argv[1], "--memory") == 0) return print_memory();
  return bench::bench_main(
      argc, argv, "shmap_grad",
      {{"mlp_grad", {}, mlp_grad},
       {"grad_1000", {}, grad_1000},
       {"transformer_grad", {.flops = 3 * layer::kForwardFlops}, transformer_grad},
       {"transformer_grad_first_call", {}, [] { return first_calls(false); }},
       {"transformer_grad_first_two_calls", {}, [] { return first_calls(true); }},
       {"attention_2048", {.flops = bench::LongAttention::kFlops}, attention_2048},
       {"attention_2048_grad", {.flops = 3 * bench::LongAttention::kFlops}, attention_2048_grad}},
      {{"devices", devices == nullptr ? "cpu:8" : devices}});
}
