// Fused programs on one device: a chain of six operations on 16 Mi floats, softmax and layer_norm
// of 4096 x 4096, and the same programs operation by operation ("eager"). Every result is compared
// with the eager one, to the last bit.
#include <shmap/shmap.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/data.h"
#include "bench/support/rows.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/fused_program.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;

using Program = std::shared_ptr<FusedProgram>;

int number(FusedProgram& p, float value) { return p.add_literal(f32, &value); }

constexpr std::int64_t kRows = 4096, kCols = 4096;

Program chain(std::int64_t n) {
  auto p = std::make_shared<FusedProgram>(1, n);
  const int x = p->add_input(f32, FusedKind::full);
  int y = p->add_map(mul_p, {x, number(*p, 1.5f)});
  y = p->add_map(add_p, {y, number(*p, 0.25f)});
  y = p->add_map(square_p, {y});
  y = p->add_map(sub_p, {y, x});
  y = p->add_map(max_p, {y, number(*p, 0.125f)});
  y = p->add_map(sqrt_p, {y});
  p->add_output(y, ShapedArray({n}, f32));
  return p;
}
Array chain_eager(const Array& x) { return sqrt(maximum(square(x * 1.5f + 0.25f) - x, 0.125f)); }

Program softmax_program() {
  auto p = std::make_shared<FusedProgram>(kRows, kCols);
  const int x = p->add_input(f32, FusedKind::full);
  const int e = p->add_map(exp_p, {p->add_map(sub_p, {x, p->add_reduce(reduce_max_p, x)})});
  p->add_output(p->add_map(div_p, {e, p->add_reduce(reduce_sum_p, e)}),
                ShapedArray({kRows, kCols}, f32));
  return p;
}

Program layer_norm_program() {
  auto p = std::make_shared<FusedProgram>(kRows, kCols);
  const int x = p->add_input(f32, FusedKind::full);
  const int scale = p->add_input(f32, FusedKind::col), bias = p->add_input(f32, FusedKind::col);
  const int n = number(*p, static_cast<float>(kCols));
  const int mean = p->add_map(div_p, {p->add_reduce(reduce_sum_p, x), n});
  const int centred = p->add_map(sub_p, {x, mean});
  const int power = p->add_reduce(reduce_sum_p, p->add_map(square_p, {centred}));
  const int variance = p->add_map(add_p, {p->add_map(div_p, {power, n}), number(*p, 1e-5f)});
  const int y = p->add_map(mul_p, {centred, p->add_map(rsqrt_p, {variance})});
  p->add_output(p->add_map(add_p, {p->add_map(mul_p, {y, scale}), bias}),
                ShapedArray({kRows, kCols}, f32));
  return p;
}

Array run(const Program& program, std::vector<Array> in) {
  return bind_all(fused_p, in, FusedParams(program), {})[0];
}

// Times `call`, whose results must equal those of `want`.
Work compared(std::function<Array()> call, std::function<Array()> want) {
  auto result = std::make_shared<Array>();
  return {[=] {
            *result = Array();  // the next result reuses its memory
            *result = call();
            result->block_until_ready();
          },
          [=]() -> std::string {
            const std::vector<float> a = result->to_vector<float>(), b = want().to_vector<float>();
            return bench::difference(a, std::span<const float>(b));
          },
          {}};
}

Array random_array(const Shape& shape, std::uint64_t seed) {
  return array<float>(bench::random_floats(static_cast<std::size_t>(shape.num_elements()), seed),
                      shape);
}

std::vector<Row> rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* name, double bytes, auto make_fused, auto make_eager) {
    rows.push_back({std::string(name) + " fused", {0, bytes, 1}, [=] {
                      auto [fused, eager] = std::pair{make_fused(), make_eager()};
                      return compared(fused, eager);
                    }});
    rows.push_back({std::string(name) + " eager", {0, bytes, 1}, [=] {
                      auto eager = make_eager();
                      return compared(eager, eager);
                    }});
  };
  for (const auto& [name, n] : {std::pair{"chain 16 Mi", std::int64_t{1} << 24},
                                std::pair{"chain 64 Ki", std::int64_t{1} << 16},
                                std::pair{"chain 1 Ki", std::int64_t{1} << 10}}) {
    add(
        name, 8.0 * static_cast<double>(n),
        [n = n] { return [p = chain(n), x = random_array({n}, 1)] { return run(p, {x}); }; },
        [n = n] { return [x = random_array({n}, 1)] { return chain_eager(x); }; });
  }
  const double bytes = 8.0 * kRows * kCols;
  add(
      "softmax 4096", bytes,
      [] {
        return [p = softmax_program(), x = random_array({kRows, kCols}, 2)] { return run(p, {x}); };
      },
      [] {
        return [x = random_array({kRows, kCols}, 2)] { return softmax(x); };
      });
  add(
      "layer_norm 4096", bytes,
      [] {
        return [p = layer_norm_program(), x = random_array({kRows, kCols}, 3),
                s = random_array({kCols}, 4), b = random_array({kCols}, 5)] {
          return run(p, {x, s, b});
        };
      },
      [] {
        return [x = random_array({kRows, kCols}, 3), s = random_array({kCols}, 4),
                b = random_array({kCols}, 5)] { return layer_norm(x, s, b); };
      });
  return rows;
}

}  // namespace

int main(int argc, char** argv) { return bench::bench_main(argc, argv, "fused_bench", rows()); }
