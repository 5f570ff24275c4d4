// Rows of jit and tracing, in addition to shmap_bench: fused programs on one device, the
// time of tracing, the host's time for a call on meshes of many virtual devices (as
// many as SHMAP_DEVICES gives; `cpu:8` if it is unset), and bodies with automatic axes.
// bench/README.md describes their peers.
#include <shmap/shmap.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/support/data.h"
#include "bench/support/rows.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;

// The result is dropped before the next call, which then reuses its memory.
Work waited_calls(std::function<Array()> f, std::function<std::string(const Array&)> check) {
  auto result = std::make_shared<Array>();
  auto call = [f, result] {
    *result = Array();
    *result = f();
    result->block_until_ready();
  };
  return {call, [result, check] { return check(*result); }, {}};
}

// ------------------------------------------------------------------------- fused, on one device

constexpr std::size_t kChain = std::size_t{1} << 24;
constexpr std::size_t kRows = 4096, kCols = 4096;

Work fused_chain() {
  auto values = std::make_shared<std::vector<float>>(bench::random_floats(kChain, 1));
  Array x = array<float>(*values, {kChain});
  auto f = jit([](Array x) { return sqrt(maximum(square(x * 1.5f + 0.25f) - x, 0.125f)); });
  return waited_calls([f, x] { return f(x); },
                      [values](const Array& y) {
                        std::vector<double> want(values->size());
                        for (std::size_t k = 0; k < want.size(); ++k) {
                          const double v = (*values)[k], s = v * 1.5 + 0.25;
                          want[k] = std::sqrt(std::max(s * s - v, 0.125));
                        }
                        return bench::difference(y.to_vector<float>(), want, 1e-5);
                      });
}

// Compares every 64th row of `got` with `reference`, which computes the result of a row in doubles.
std::string compare_rows(const std::vector<float>& x, const Array& got,
                         const std::function<void(std::span<const float>, double*)>& reference) {
  const std::vector<float> all = got.to_vector<float>();
  std::vector<double> want(kCols);
  for (std::size_t row = 0; row < kRows; row += 64) {
    reference(std::span(x).subspan(row * kCols, kCols), want.data());
    std::string fault = bench::difference(std::span(all).subspan(row * kCols, kCols), want, 2e-5);
    if (!fault.empty()) return "row " + std::to_string(row) + ": " + fault;
  }
  return {};
}

Work softmax_row() {
  auto values = std::make_shared<std::vector<float>>(bench::random_floats(kRows * kCols, 2));
  Array x = array<float>(*values, {kRows, kCols});
  auto f = jit([](Array x) { return softmax(x); });
  const auto reference = [](std::span<const float> row, double* want) {
    double sum = 0;
    for (std::size_t k = 0; k < row.size(); ++k) sum += want[k] = std::exp(double(row[k]));
    for (std::size_t k = 0; k < row.size(); ++k) want[k] /= sum;
  };
  return waited_calls(
      [f, x] { return f(x); },
      [values, reference](const Array& y) { return compare_rows(*values, y, reference); });
}

Work layer_norm_row() {
  auto values = std::make_shared<std::vector<float>>(bench::random_floats(kRows * kCols, 3));
  std::vector<float> scale = bench::random_floats(kCols, 4), bias = bench::random_floats(kCols, 5);
  Array x = array<float>(*values, {kRows, kCols});
  Array s = array<float>(scale, {kCols}), b = array<float>(bias, {kCols});
  auto f = jit([](Array x, Array scale, Array bias) { return layer_norm(x, scale, bias); });
  const auto reference = [scale, bias](std::span<const float> row, double* want) {
    double mean = 0, variance = 0;
    for (float v : row) mean += v / double(row.size());
    for (float v : row) variance += (v - mean) * (v - mean) / double(row.size());
    for (std::size_t k = 0; k < row.size(); ++k)
      want[k] = (row[k] - mean) / std::sqrt(variance + 1e-5) * scale[k] + bias[k];
  };
  return waited_calls(
      [f, x, s, b] { return f(x, s, b); },
      [values, reference](const Array& y) { return compare_rows(*values, y, reference); });
}

// ------------------------------------------------------------------------------------- tracing

int occurrences(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Traces 1000 equations. Each call traces anew, since its function captures a value.
Work trace_1000() {
  constexpr int kPairs = 500;
  auto latest = std::make_shared<std::optional<ClosedJaxpr>>();
  auto call = [latest] {
    int pairs = kPairs;
    *latest = make_jaxpr([pairs](Array x) {
      Array y = x;
      for (int k = 0; k < pairs; ++k) y = sin(y) * x;
      return y;
    })(ShapedArray({1024}, f32));
  };
  auto check = [latest]() -> std::string {
    std::vector<float> values = bench::random_floats(1024, 6);
    std::vector<double> want(values.begin(), values.end());
    for (std::size_t k = 0; k < want.size(); ++k)
      for (int n = 0; n < kPairs; ++n) want[k] = std::sin(want[k]) * values[k];
    const std::string text = to_string(**latest);
    for (const char* op : {"= sin ", "= mul "})
      if (occurrences(text, op) != kPairs) return "other equations than 500 sin and 500 mul";
    std::vector<Array> out = eval_jaxpr(**latest, {array<float>(values, {1024})});
    return bench::difference(out.at(0).to_vector<float>(), want, 1e-4);
  };
  return {call, check, {}};
}

// --------------------------------------------------------- many devices: µs a call *and device*

struct OnAll {
  int devices = static_cast<int>(shmap::devices().size());
  std::size_t n = std::size_t(devices) * 256;  // 1 KiB a device
  Mesh mesh = make_mesh({devices}, {"i"});
  std::vector<float> a = bench::random_floats(n, 7), b = bench::random_floats(n, 8);
  Array x = put(a), y = put(b), z;
  Array put(const std::vector<float>& values) const {
    return device_put(array<float>(values, {values.size()}), NamedSharding(mesh, P("i")));
  }
};

template <class F>
Work calls_a_device(std::shared_ptr<OnAll> t, F call, std::function<std::string()> check) {
  auto time_batch = [t, call](std::int64_t n) {
    auto start = std::chrono::steady_clock::now();
    for (std::int64_t k = 0; k < n; ++k) {
      t->z = Array();
      t->z = call();
      t->z.block_until_ready();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  return {{}, check, time_batch, static_cast<double>(t->devices)};
}

Work eager_op_a_device() {
  auto t = std::make_shared<OnAll>();
  return calls_a_device(
      t, [p = t.get()] { return p->x + p->y; },
      [t] {
        std::vector<float> want(t->n);
        for (std::size_t k = 0; k < want.size(); ++k) want[k] = t->a[k] + t->b[k];
        return bench::difference(t->z.to_vector<float>(), std::span<const float>(want));
      });
}

Work psum_a_device() {
  auto t = std::make_shared<OnAll>();
  auto f = jit(shard_map([](Array x) { return psum(x, "i"); }, t->mesh, P("i"), P()));
  return calls_a_device(
      t, [p = t.get(), f] { return f(p->x); },
      [t] {
        std::vector<double> want(256, 0.0);
        for (std::size_t k = 0; k < t->n; ++k) want[k % 256] += t->a[k];
        return bench::difference(t->z.to_vector<float>(), want, 1e-4);
      });
}

// ------------------------------------------------------------------- bodies with automatic axes

// A mapped function of ten elementwise operations and a psum over 4 x 2 devices, 4 KiB a device.
// Its second axis is automatic.
Work automatic_body(bool under_jit) {
  constexpr std::size_t kBlocks = 4, kBlock = 16 * 128;
  const auto elementwise = [](Array x) {
    for (int k = 0; k < 5; ++k) x = tanh(x) * 1.25f;
    return psum(x, "i");
  };
  std::vector<float> values = bench::random_floats(kBlocks * kBlock, 9);
  std::vector<double> want(kBlock, 0.0);
  for (std::size_t k = 0; k < values.size(); ++k) {
    double v = values[k];
    for (int n = 0; n < 5; ++n) v = std::tanh(v) * 1.25;
    want[k % kBlock] += v;
  }
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(array<float>(values, {64, 128}), NamedSharding(mesh, P("i", "j")));
  ShardMapOptions options;
  options.axis_names = "i";
  const auto check = [want](const Array& y) {
    return bench::difference(y.to_vector<float>(), want, 1e-4);
  };
  if (!under_jit) {
    const auto f = shard_map(elementwise, mesh, P("i"), P(), options);
    return waited_calls([f, x] { return f(x); }, check);
  }
  const auto f = shard_map(jit(elementwise), mesh, P("i"), P(), options);
  return waited_calls([f, x] { return f(x); }, check);
}

std::vector<Row> all_rows() {
  return {{"fused_chain", {.bytes = 8.0 * kChain}, fused_chain},
          {"softmax", {.bytes = 8.0 * kRows * kCols}, softmax_row},
          {"layer_norm", {.bytes = 8.0 * kRows * kCols}, layer_norm_row},
          {"trace_1000", {}, trace_1000},
          {"eager_op_a_device", {}, eager_op_a_device},
          {"jit_psum_a_device", {}, psum_a_device},
          {"automatic_body", {}, [] { return automatic_body(false); }},
          {"jit_in_automatic_body", {}, [] { return automatic_body(true); }}};
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8" : devices});
  return bench::bench_main(argc, argv, "shmap_jit", all_rows(),
                           {{"devices", devices == nullptr ? "cpu:8" : devices}});
}
