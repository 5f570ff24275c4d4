// `fused` on a GPU: programs against the same operations one by one, to the last bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/ir/trace.h"
#include "core/runtime/kernel.h"
#include "shmap/shmap.h"
#include "tests/cuda/fused/fused_programs.h"
#include "tests/cuda/kernels/device_memory.h"
#include "tests/support/fused_cases.h"

namespace shmap::cuda {
namespace {

using namespace testing;
using shmap::testing::FusedCase;
using shmap::testing::random_fused_case;
using shmap::testing::run_fused_case;

class CudaFused : public OnGpu {};

TEST_F(CudaFused, RandomProgramsGiveWhatTheirOperationsGive) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> spaces = {
      {5, 0},   {1, 1},    {1, 7},    {7, 1},  {60, 4},   {13, 17}, {97, 31},
      {9, 200}, {5, 1000}, {2, 2049}, {72, 8}, {36, 100}, {12, 700}};
  const std::vector<std::vector<DType>> dtypes = {
      {f32, f32, bool_}, {f32, f64, i32}, {bf16, f32},   {f16, f32, bool_},
      {i32, i64, bool_}, {u8, i16, f32},  {f64, i8, u64}};
  std::uint64_t seed = 1;
  for (const auto& [rows, cols] : spaces) {
    for (const int ops : {4, 12}) {
      const std::vector<DType>& types = dtypes[seed % dtypes.size()];
      // Sums of longer rows are put together in another order than by reductions alone.
      const bool sums = cols <= 200;
      EXPECT_EQ(run_fused_case(random_fused_case(seed, {rows, cols, types, ops, sums})), "")
          << "seed " << seed;
      ++seed;
    }
  }
}

// Rows of every form: some a warp, a warp each, a block each, and read again by every step. Sums of
// longer rows are near those of reductions alone, those of short ones the same.
TEST_F(CudaFused, SoftmaxOfRowsOfAnyLength) {
  shmap::testing::Random random(5);
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {3, 1}, {37, 10}, {9, 64}, {5, 512}, {3, 1000}, {2, 4096}, {2, 40001}}) {
    const Array x = random.values(f32, {rows, cols});
    const Array finite = where(isfinite(x), x, 0.5f);
    const Array e = exp(finite - max(finite, -1, true));
    const Array want = e / sum(e, -1, true);
    Array in[] = {finite};
    const Array got = bind_all(fused_p, in, FusedParams(softmax_program(rows, cols)), {})[0];
    const std::vector<float> a = got.to_vector<float>(), b = want.to_vector<float>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (cols <= 768)
        ASSERT_EQ(a[i], b[i]) << cols << " columns, element " << i;
      else
        ASSERT_NEAR(a[i], b[i], 1e-5 * std::abs(b[i])) << cols << " columns, element " << i;
    }
  }
}

TEST_F(CudaFused, EveryPrimitiveOfEveryDType) {
  for (const DType dtype : kFusedDTypes) {
    const Program p = every_map_program(dtype, 70);
    shmap::testing::Random random(17);
    const Array x = random.values(dtype, {70}), y = random.values(dtype, {70});
    // Runs the program's operations one by one.
    std::vector<Array> values;
    for (int v = 0; v < p->value_count(); ++v) {
      if (p->is_input(v)) {
        values.push_back(v == 0 ? x : y);
        continue;
      }
      const FusedProgram::Op& op = p->ops()[static_cast<std::size_t>(p->index(v))];
      std::vector<Array> in;
      for (int o : op.operands) in.push_back(values[static_cast<std::size_t>(o)]);
      values.push_back(bind_all(*op.primitive, in, op.params ? *op.params : no_params, {})[0]);
    }
    Array in[] = {x, y};
    const Array got = bind_all(fused_p, in, FusedParams(p), {})[0];
    EXPECT_EQ(got.to_vector<bool>(), values.back().to_vector<bool>()) << dtype;
  }
}

KernelCall call_of(const FusedParams& params, std::span<const void* const> in,
                   std::span<void* const> out, Types in_types, Types out_types, void* native) {
  KernelCall call{in, out, in_types, out_types, params};
  call.native = native;
  return call;
}

// Addresses are not those of vectors, and an operand is on the host.
TEST_F(CudaFused, OperandsAtAnyAddressAndOnTheHost) {
  constexpr std::size_t n = 1003;
  std::vector<float> x(n), y(n), want(n);
  const float a = 0.25f;
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i) / 64;
    y[i] = 3 - static_cast<float>(i % 7);
  }
  const FusedParams params(map_program(n));
  const ShapedArray type({n}, f32), one({}, f32);
  const ShapedArray in_types[] = {type, type, one}, out_types[] = {type};
  std::vector<float> results[2];
  for (const std::int64_t offset : {0, 4}) {
    const DeviceBytes dx(x, offset), dy(y, offset), out(4 * n, offset);
    const void* in[] = {dx.data(), dy.data(), &a};
    void* to[] = {out.data()};
    on_stream([&](void* native) {
      KernelCall call = call_of(params, in, to, in_types, out_types, native);
      call.literals = 1u << 2;
      fused_p.kernel(DeviceKind::cuda).run(call);
    });
    results[offset != 0] = out.read<float>();
  }
  EXPECT_EQ(results[0], results[1]);
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_NEAR(results[0][i], std::tanh((x[i] * 1.5f + y[i]) * a), 1e-6) << i;
}

// Each result uses the memory of an operand, in every form: maps, rows that stay in registers, and
// rows that every step reads again.
TEST_F(CudaFused, ResultsInTheMemoryOfOperands) {
  int taken = 0;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {2, 1003}, {37, 10}, {9, 64}, {5, 512}, {3, 1000}, {2, 40001}}) {
    for (const bool reduces : {false, true}) {
      const auto program = std::make_shared<FusedProgram>(rows, cols);
      FusedProgram& p = *program;
      const int x = p.add_input(i32, FusedKind::full), y = p.add_input(i32, FusedKind::full),
                shift = p.add_input(i32, FusedKind::row);
      int t = p.add_map(mul_p, {x, y});
      const int total = p.add_map(add_p, {p.add_reduce(reduce_sum_p, t), shift});
      if (reduces) t = p.add_map(sub_p, {p.add_map(add_p, {t, total}), x});
      const ShapedArray full({rows, cols}, i32), row({rows}, i32);
      p.add_output(p.add_map(neg_p, {t}), full);
      p.add_output(p.add_map(square_p, {t}), full);
      if (reduces) p.add_output(total, row);
      const FusedParams params(program);
      const std::vector<ShapedArray> in_types = {full, full, row};
      const std::vector<ShapedArray> out_types(reduces ? std::vector{full, full, row}
                                                       : std::vector{full, full});
      std::vector<std::vector<std::int32_t>> values;
      for (const ShapedArray& type : in_types) {
        values.emplace_back();
        for (std::int64_t i = 0; i < type.size(); ++i)
          values.back().push_back(static_cast<std::int32_t>((i * 37 + 11) % 97) - 40);
      }
      std::vector<std::vector<std::int32_t>> results[2];
      for (const bool shared : {false, true}) {
        std::vector<std::unique_ptr<DeviceBytes>> in, out;
        std::vector<const void*> from;
        std::vector<void*> to;
        std::vector<const DeviceBytes*> where;
        for (const auto& v : values) {
          in.push_back(std::make_unique<DeviceBytes>(v));
          from.push_back(in.back()->data());
        }
        std::uint32_t left = shared ? 0b111 : 0;
        for (std::size_t o = 0; o < out_types.size(); ++o) {
          const std::uint32_t may = fused_p.kernel(DeviceKind::cuda).overwrites(params, o) & left;
          if (may != 0) {
            where.push_back(in[static_cast<std::size_t>(std::countr_zero(may))].get());
            left &= ~(may & -may);
            ++taken;
          } else {
            out.push_back(std::make_unique<DeviceBytes>(out_types[o].nbytes()));
            where.push_back(out.back().get());
          }
          to.push_back(where.back()->data());
        }
        on_stream([&](void* native) {
          fused_p.kernel(DeviceKind::cuda)
              .run(call_of(params, from, to, in_types, out_types, native));
        });
        for (const DeviceBytes* bytes : where)
          results[shared].push_back(bytes->read<std::int32_t>());
      }
      EXPECT_EQ(results[0], results[1]) << program->text();
    }
  }
  EXPECT_EQ(taken, 6 * (2 + 3));
}

// Runs under jit, where a graph launches the kernel from the third call on.
TEST_F(CudaFused, LayersUnderJit) {
  const Array x = reshape(arange(8 * 48), {8, 48}) / 100.f, scale = ones({48}) * 0.5f,
              bias = arange(48) / 10.f;
  const auto f = [](Array a, Array s, Array b) {
    return std::pair{softmax(a), layer_norm(gelu(a), s, b)};
  };
  const auto [want_soft, want_norm] = f(x, scale, bias);
  const auto step = jit(f);
  for (int k = 0; k < 4; ++k) {
    const auto [soft, norm] = step(x, scale, bias);
    EXPECT_EQ(soft.to_vector<float>(), want_soft.to_vector<float>()) << "call " << k;
    EXPECT_EQ(norm.to_vector<float>(), want_norm.to_vector<float>()) << "call " << k;
  }
  EXPECT_NE(step.plan_text().find("fused"), std::string::npos) << step.plan_text();
}

}  // namespace
}  // namespace shmap::cuda
