// shmap-test: devices
// The batching rule of every primitive, against a loop over the batch.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "core/ir/trace.h"
#include "core/ops/dot.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather_ops.h"
#include "core/ops/reduce.h"
#include "core/ops/scan.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/ops/sort.h"
#include "shmap/shmap.h"
#include "tests/support/vmap_loop.h"

namespace shmap {
namespace {

using testing::check_vmap;
using testing::VmapCase;
using Arrays = std::vector<Array>;

ShapedArray type(Shape shape, DType dtype = f32) { return ShapedArray(shape, dtype); }

// An operation of these parameters.
template <class P>
VmapCase op(const Primitive& p, P params, std::vector<ShapedArray> in, double tolerance = 1e-6) {
  return {p.name,
          [&p, params](const Arrays& args) {
            Arrays operands = args;
            return bind_all(p, operands, params, {});
          },
          std::move(in), tolerance};
}
VmapCase op(const Primitive& p, std::vector<ShapedArray> in) {
  return {p.name,
          [&p](const Arrays& args) {
            Arrays operands = args;
            return bind_all(p, operands, no_params, {});
          },
          std::move(in)};
}

DType dtype_in(Domain domain) {
  return domain == Domain::integers || domain == Domain::bits ? i32 : f32;
}

std::vector<VmapCase> elementwise_cases() {
  std::vector<VmapCase> all;
  const Shape full{2, 3}, none{};
#define UNARY(name, domain, ...)      \
  for (const Shape& s : {full, none}) \
    all.push_back(op(name##_p, {type(s, dtype_in(Domain::domain))}));
#define BINARY(name, domain, ...)       \
  for (const Shape& a : {full, none})   \
    for (const Shape& b : {full, none}) \
      all.push_back(                    \
          op(name##_p, {type(a, dtype_in(Domain::domain)), type(b, dtype_in(Domain::domain))}));
  SHMAP_UNARY_OPS(UNARY)
  SHMAP_PREDICATE_OPS(UNARY)
  SHMAP_BINARY_OPS(BINARY)
  SHMAP_COMPARE_OPS(BINARY)
#undef UNARY
#undef BINARY
  for (const Shape& a : {full, none})
    for (const Shape& b : {full, none})
      for (const Shape& c : {full, none}) {
        all.push_back(op(select_n_p, {type(a, DType::bool_), type(b), type(c)}));
        // clamp's middle operand has the shape of the result.
        if (b == full || (a == none && c == none))
          all.push_back(op(clamp_p, {type(a), type(b), type(c)}));
      }
  for (const Shape& s : {full, none}) {
    all.push_back(op(stop_gradient_p, {type(s)}));
    all.push_back(op(convert_element_type_p, ConvertParams(f64), {type(s, i32)}));
    all.push_back(op(bitcast_convert_type_p, ConvertParams(i32), {type(s)}));
    all.push_back(op(bitcast_convert_type_p, ConvertParams(u8), {type(s, u32)}));
  }
  all.push_back(op(bitcast_convert_type_p, ConvertParams(u32), {type({2, 4}, u8)}));
  return all;
}

Dims dims(std::vector<int> list) { return Dims(list); }

std::vector<VmapCase> dim_cases() {
  std::vector<VmapCase> all;
  const ShapedArray x = type({2, 3, 4});
  for (const Dims& axes : {dims({0}), dims({1}), dims({2}), dims({0, 2}), dims({0, 1, 2})}) {
    for (const Primitive* p : {&reduce_sum_p, &reduce_prod_p, &reduce_max_p, &reduce_min_p})
      all.push_back(op(*p, ReduceParams(axes), {x}));
    for (const Primitive* p : {&reduce_and_p, &reduce_or_p})
      all.push_back(op(*p, ReduceParams(axes), {type({2, 3, 4}, DType::bool_)}));
  }
  for (int axis : {0, 1, 2}) {
    for (const Primitive* p : {&argmax_p, &argmin_p})
      all.push_back(op(*p, ArgReduceParams(Dims(axis), i32), {x}));
    for (const Primitive* p : {&cumsum_p, &cumprod_p, &cummax_p, &cummin_p, &cumlogsumexp_p}) {
      all.push_back(op(*p, ScanParams(axis), {x}));
      all.push_back(op(*p, ScanParams(axis, true), {x}));
    }
    all.push_back(op(sort_p, SortParams(axis), {x}));
    all.push_back(op(sort_p, SortParams(axis, 2), {type({2, 3, 4}, i32), x, x}));
  }
  all.push_back(op(top_k_p, TopKParams(2, 2), {x}));
  all.push_back(op(top_k_p, TopKParams(0, 3), {type({5}, i32)}));
  return all;
}

std::vector<VmapCase> shape_cases() {
  std::vector<VmapCase> all;
  const auto broadcast = [&](Shape from, Shape to, Dims at) {
    BroadcastParams p;
    p.shape = to;
    p.dims = at;
    all.push_back(op(broadcast_in_dim_p, p, {type(from)}));
  };
  broadcast({}, {2, 3}, {});
  broadcast({3}, {2, 3}, dims({1}));
  broadcast({2}, {2, 3}, dims({0}));
  broadcast({2, 1}, {2, 4, 3}, dims({0, 2}));
  broadcast({2, 3}, {5, 2, 4, 3}, dims({1, 3}));
  for (const Shape& to : {Shape{3, 2}, Shape{6}, Shape{1, 6, 1}}) {
    ReshapeParams p;
    p.new_sizes = to;
    all.push_back(op(reshape_p, p, {type({2, 3})}));
  }
  for (const Dims& perm : {dims({1, 2, 0}), dims({2, 1, 0}), dims({0, 2, 1}), dims({0, 1, 2})}) {
    TransposeParams p;
    p.permutation = perm;
    all.push_back(op(transpose_p, p, {type({2, 3, 4})}));
  }
  for (const Dims& d : {dims({0}), dims({1}), dims({0, 1})}) {
    RevParams p;
    p.dimensions = d;
    all.push_back(op(rev_p, p, {type({2, 3})}));
  }
  for (int d : {0, 1}) {
    ConcatenateParams p;
    p.dimension = d;
    const Shape other = d == 0 ? Shape{4, 3} : Shape{2, 5};
    all.push_back(op(concatenate_p, p, {type({2, 3}), type(other), type({2, 3})}));
  }
  PadParams pad;
  pad.low = dims({1, 0});
  pad.high = dims({2, -1});
  pad.interior = dims({0, 1});
  all.push_back(op(pad_p, pad, {type({2, 3}), type({})}));
  all.push_back(op(pad_p, pad, {type({2, 3}, DType::bool_), type({}, DType::bool_)}));
  return all;
}

std::vector<VmapCase> slicing_cases() {
  std::vector<VmapCase> all;
  SliceParams part;
  part.start_indices = dims({1, 0});
  part.limit_indices = dims({3, 4});
  part.strides = dims({1, 2});
  all.push_back(op(slice_p, part, {type({3, 4})}));
  for (const Shape& sizes : {Shape{2, 3}, Shape{3, 4}, Shape{1, 4}, Shape{0, 2}}) {
    DynamicSliceParams p;
    p.slice_sizes = sizes;
    for (const DType index : {i32, i64, u8, u64}) {
      all.push_back(op(dynamic_slice_p, p, {type({3, 4}), type({}, index), type({}, i32)}));
      all.push_back(
          op(dynamic_update_slice_p, {type({3, 4}), type(sizes), type({}, index), type({}, i32)}));
    }
    // Starts that wrap and starts far out.
    VmapCase negative = op(dynamic_slice_p, p, {type({3, 4}), type({}, i32), type({}, i32)});
    const auto f = negative.f;
    negative.name += " from the end";
    negative.f = [f](const Arrays& a) { return f({a[0], a[1] - 3, a[2] * 5 - 8}); };
    all.push_back(negative);
    VmapCase update =
        op(dynamic_update_slice_p, {type({3, 4}), type(sizes), type({}, i32), type({}, i32)});
    const auto g = update.f;
    update.name += " from the end";
    update.f = [g](const Arrays& a) { return g({a[0], a[1], a[2] - 3, a[3] * 5 - 8}); };
    all.push_back(update);
  }
  DynamicSliceParams scalar;
  all.push_back(op(dynamic_slice_p, scalar, {type({})}));
  return all;
}

std::vector<VmapCase> gather_cases() {
  std::vector<VmapCase> all;
  for (const GatherMode mode : {GatherMode::clip, GatherMode::fill, GatherMode::zero}) {
    GatherParams rows;  // x[i] of each of many i
    rows.offset_dims = dims({1});
    rows.collapsed_slice_dims = dims({0});
    rows.start_index_map = dims({0});
    rows.slice_sizes = Shape{1, 3};
    rows.mode = mode;
    all.push_back(op(gather_p, rows, {type({4, 3}), type({5, 1}, i32)}));
    GatherParams windows;  // of 2 × 2, the window's dims around those of the indices
    windows.offset_dims = dims({0, 2});
    windows.start_index_map = dims({1, 0});
    windows.slice_sizes = Shape{2, 2};
    windows.mode = mode;
    all.push_back(op(gather_p, windows, {type({4, 3}), type({5, 2}, i32)}));
    GatherParams paired;  // x[k, i[k]]
    paired.collapsed_slice_dims = dims({1});
    paired.start_index_map = dims({1});
    paired.operand_batching_dims = dims({0});
    paired.start_indices_batching_dims = dims({0});
    paired.slice_sizes = Shape{1, 1};
    paired.mode = mode;
    all.push_back(op(gather_p, paired, {type({4, 3}), type({4, 1}, i32)}));
    if (mode == GatherMode::fill) continue;
    all.push_back(
        op(scatter_add_p, scatter_of(rows), {type({4, 3}), type({5, 1}, i32), type({5, 3})}, 1e-5));
    all.push_back(op(scatter_add_p, scatter_of(windows),
                     {type({4, 3}), type({5, 2}, i32), type({2, 5, 2})}, 1e-5));
    all.push_back(
        op(scatter_add_p, scatter_of(paired), {type({4, 3}), type({4, 1}, i32), type({4})}, 1e-5));
  }
  return all;
}

std::vector<VmapCase> dot_cases() {
  std::vector<VmapCase> all;
  const auto dot = [&](Shape a, Shape b, Dims ca, Dims cb, Dims ba, Dims bb) {
    DotParams p;
    p.lhs_contracting = ca;
    p.rhs_contracting = cb;
    p.lhs_batch = ba;
    p.rhs_batch = bb;
    all.push_back(op(dot_general_p, p, {type(a), type(b)}, 1e-5));
  };
  dot({4}, {4}, dims({0}), dims({0}), {}, {});
  dot({2, 4}, {4, 3}, dims({1}), dims({0}), {}, {});
  dot({4, 2}, {3, 4}, dims({0}), dims({1}), {}, {});
  dot({2, 4, 5}, {3, 4}, dims({1}), dims({1}), {}, {});
  dot({5, 2, 4}, {5, 4, 3}, dims({2}), dims({1}), dims({0}), dims({0}));
  dot({2, 5, 4, 6}, {4, 3, 5}, dims({2}), dims({0}), dims({1}), dims({2}));
  dot({2, 3}, {4}, {}, {}, {}, {});
  return all;
}

std::vector<VmapCase> all_cases() {
  std::vector<VmapCase> all;
  for (auto* family :
       {elementwise_cases, dim_cases, shape_cases, slicing_cases, gather_cases, dot_cases})
    for (VmapCase& c : family()) all.push_back(std::move(c));
  return all;
}

TEST(VmapRules, Elementwise) {
  for (const VmapCase& c : elementwise_cases()) EXPECT_EQ(check_vmap(c), "");
}
TEST(VmapRules, AlongDims) {
  for (const VmapCase& c : dim_cases()) EXPECT_EQ(check_vmap(c), "");
}
TEST(VmapRules, Shapes) {
  for (const VmapCase& c : shape_cases()) EXPECT_EQ(check_vmap(c), "");
}
TEST(VmapRules, Slices) {
  for (const VmapCase& c : slicing_cases()) EXPECT_EQ(check_vmap(c), "");
}
TEST(VmapRules, GatherAndScatter) {
  for (const VmapCase& c : gather_cases()) EXPECT_EQ(check_vmap(c), "");
}
TEST(VmapRules, Products) {
  for (const VmapCase& c : dot_cases()) EXPECT_EQ(check_vmap(c), "");
}

// Every primitive has a rule that some test here or in vmap_test.cpp calls, or a reason why not.
TEST(VmapRules, EveryPrimitiveHasARuleOrAReason) {
  // These are in vmap_test.cpp, in the tests of custom rules and of checkpoint, in tests/shard_map,
  // in overlapped_products_test.cpp, in indexed_update_test.cpp, in keys_test.cpp, and in
  // attention_derivatives_test.cpp.
  std::istringstream elsewhere(
      "jit sharding_constraint device_put while scan cond debug_print shard_map custom_jvp_call "
      "custom_vjp_call checkpoint psum pmax pmin pbroadcast ppermute all_gather psum_scatter "
      "all_gather_invariant pscatter all_to_all broadcast_from all_gather_einsum "
      "einsum_psum_scatter all_to_all_einsum einsum_all_to_all scatter scatter_mul scatter_min "
      "scatter_max random_bits random_fold_in random_gamma_sample random_split random_unwrap "
      "random_wrap threefry2x32 attention attention_tangent attention_grad");
  std::set<std::string> covered;
  for (std::string name; elsewhere >> name;) covered.insert(name);
  for (const VmapCase& c : all_cases()) covered.insert(c.name);
  const std::string unwritten = Rule<BatchFn>().reason();
  for (const Primitive* p : all_primitives()) {
    if (p->batching) {
      EXPECT_TRUE(covered.count(p->name)) << p->name << " has a batching rule and no test";
    } else {
      EXPECT_NE(p->batching.reason(), unwritten) << p->name;
    }
  }
}

}  // namespace
}  // namespace shmap
