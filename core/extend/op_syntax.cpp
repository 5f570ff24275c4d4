// The parameters of the library's operations, by name.
#include <algorithm>

#include "core/debug/staged_print.h"
#include "core/extend/param_reader.h"
#include "core/ir/node.h"
#include "core/ops/concatenate_slices.h"
#include "core/ops/dot.h"
#include "core/ops/elementwise.h"
#include "core/ops/gamma_sample.h"
#include "core/ops/gather_ops.h"
#include "core/ops/gather_reduce.h"
#include "core/ops/placed_slice.h"
#include "core/ops/product.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/scan.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/ops/sort.h"
#include "core/runtime/flow_task.h"
#include "core/runtime/fused_columns.h"
#include "core/runtime/fused_program.h"

namespace shmap {

namespace {

using Read = std::shared_ptr<const Params>;
using Reader = ParamReader;

template <class P>
Read made(P params) {
  return std::make_shared<P>(std::move(params));
}

Read read_convert(Reader& r) {
  return made(ConvertParams(r.dtype("new_dtype"), r.has("weak_type") && r.flag("weak_type")));
}

Read read_broadcast(Reader& r) {
  BroadcastParams p;
  p.dims = r.dims("broadcast_dimensions");
  p.shape = r.shape("shape");
  return made(p);
}
Read read_reshape(Reader& r) {
  ReshapeParams p;
  p.new_sizes = r.shape("new_sizes");
  return made(p);
}
Read read_transpose(Reader& r) {
  TransposeParams p;
  p.permutation = r.dims("permutation");
  return made(p);
}
Read read_rev(Reader& r) {
  RevParams p;
  p.dimensions = normalize_dims(r.dims("dimensions"), r.operands()[0].rank(), "rev");
  return made(p);
}
Read read_concatenate(Reader& r) {
  ConcatenateParams p;
  p.dimension = r.integer("dimension");
  return made(p);
}
Read read_pad(Reader& r) {
  PadParams p;
  p.high = r.dims("high");
  p.interior = r.dims("interior");
  p.low = r.dims("low");
  return made(p);
}
Read read_iota(Reader& r) {
  IotaParams p;
  p.dimension = r.integer("dimension");
  p.dtype = r.dtype("dtype");
  p.shape = r.shape("shape");
  return made(p);
}

Read read_slice(Reader& r) {
  SliceParams p;
  p.limit_indices = r.dims("limit_indices");
  p.start_indices = r.dims("start_indices");
  if (r.has("strides")) {
    p.strides = r.dims("strides");
  } else {
    for (std::size_t d = 0; d < p.start_indices.size(); ++d) p.strides.push_back(1);
  }
  return made(p);
}
Read read_dynamic_slice(Reader& r) {
  DynamicSliceParams p;
  p.slice_sizes = r.shape("slice_sizes");
  return made(p);
}

Read read_sort(Reader& r) {
  SortParams p(r.integer("dimension"), r.has("num_keys") ? r.index("num_keys", kAnyNumber) : 1);
  if (r.has("is_stable")) p.is_stable = r.flag("is_stable");
  return made(p);
}
Read read_top_k(Reader& r) { return made(TopKParams(r.integer("axis"), r.integer("k"))); }
Read read_cumulative(Reader& r) {
  return made(ScanParams(r.integer("axis"), r.has("reverse") && r.flag("reverse")));
}
Read read_reduce(Reader& r) { return made(ReduceParams(r.dims("axes"))); }
Read read_arg_reduce(Reader& r) {
  return made(ArgReduceParams(r.dims("axes"), r.dtype("index_dtype")));
}

// "(((1,), (0,)), ((), ()))": four lists, with any brackets around them.
void read_dimension_numbers(Reader& r, DotParams& p) {
  const std::string text = r.text("dimension_numbers");
  const auto fail = [&] {
    r.fail("'dimension_numbers' is " + text +
           ": wanted (((lhs contracting), (rhs contracting)), ((lhs batch), (rhs batch)))");
  };
  std::string plain;
  for (char c : text)
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') plain += c;
  std::size_t at = 0;
  const auto skip = [&](std::string_view word) {
    if (plain.compare(at, word.size(), word) != 0) fail();
    at += word.size();
  };
  const auto list = [&]() -> Dims {
    const std::size_t end = plain.find(')', at);
    if (end == std::string::npos) fail();
    Dims dims;
    if (!value_of_text(plain.substr(at, end + 1 - at)).read(dims)) fail();
    at = end + 1;
    return dims;
  };
  skip("((");
  p.lhs_contracting = list();
  skip(",");
  p.rhs_contracting = list();
  skip("),(");
  p.lhs_batch = list();
  skip(",");
  p.rhs_batch = list();
  skip("))");
  if (at != plain.size()) fail();
}

Read read_dot(Reader& r) {
  DotParams p;
  read_dimension_numbers(r, p);
  for (int side = 0; side < 2; ++side) {
    std::uint32_t seen = 0;
    for (const Dims* dims :
         {side ? &p.rhs_contracting : &p.lhs_contracting, side ? &p.rhs_batch : &p.lhs_batch}) {
      for (std::int64_t d : *dims) {
        if (d < 0 || d >= r.operands()[static_cast<std::size_t>(side)].rank() || (seen >> d & 1u))
          r.fail("'dimension_numbers' has a dim that operand " + std::to_string(side) +
                 " of type " + to_string(r.operands()[static_cast<std::size_t>(side)]) +
                 " does not have, or a dim twice");
        seen |= 1u << d;
      }
    }
  }
  if (p.lhs_contracting.size() != p.rhs_contracting.size() ||
      p.lhs_batch.size() != p.rhs_batch.size())
    r.fail("'dimension_numbers' has different numbers of dims for the two operands");
  if (r.has("preferred_element_type")) p.preferred_element_type = r.dtype("preferred_element_type");
  return made(p);
}

// Checks batching dims: the operand's and the indices' correspond one to one and have equal
// extents.
void check_batching(Reader& r, const Dims& operand, const Dims& indices, const Dims& gone,
                    const Dims& indexed) {
  const ShapedArray &x = r.operands()[0], &at = r.operands()[1];
  if (operand.size() != indices.size())
    r.fail("'operand_batching_dims' and the batching dims of the indices are not equally many");
  std::uint32_t seen = 0;
  for (const Dims* list : {&operand, &gone}) {
    for (std::int64_t d : *list) {
      if (d < 0 || d >= x.rank() || (seen >> d & 1u))
        r.fail("'operand_batching_dims' has a dim that the operand does not have, or a dim twice");
      seen |= 1u << d;
    }
  }
  std::uint32_t taken = 0, starts = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t d = indices[i];
    if (d < 0 || d >= at.rank() - 1 || (taken >> d & 1u) || at.dims()[d] != x.dims()[operand[i]])
      r.fail(
          "'operand_batching_dims': a batching dim of the indices does not exist, is given twice, "
          "or has another extent than the operand's");
    taken |= 1u << d;
  }
  for (std::int64_t d : indexed) {
    if (d < 0 || d >= x.rank() || (starts >> d & 1u) ||
        std::find(operand.begin(), operand.end(), d) != operand.end())
      r.fail("for the dims that index vectors index has one twice, out of range or batching");
    starts |= 1u << d;
  }
}

Read read_gather_slices(Reader& r) {
  GatherParams p;
  p.collapsed_slice_dims = r.dims("collapsed_slice_dims");
  p.mode = static_cast<GatherMode>(r.choice(
      "mode", {std::string(name_of(GatherMode::clip)), std::string(name_of(GatherMode::fill)),
               std::string(name_of(GatherMode::zero))}));
  p.offset_dims = r.dims("offset_dims");
  p.operand_batching_dims = r.dims("operand_batching_dims");
  p.slice_sizes = r.shape("slice_sizes");
  p.start_index_map = r.dims("start_index_map");
  p.start_indices_batching_dims = r.dims("start_indices_batching_dims");
  check_batching(r, p.operand_batching_dims, p.start_indices_batching_dims, p.collapsed_slice_dims,
                 p.start_index_map);
  return made(p);
}

Read read_scatter_slices(Reader& r) {
  ScatterAddParams p;
  p.inserted_window_dims = r.dims("inserted_window_dims");
  p.clip = r.choice("mode", {"drop", "clip"}) == 1;
  p.operand_batching_dims = r.dims("operand_batching_dims");
  p.scatter_dims_to_operand_dims = r.dims("scatter_dims_to_operand_dims");
  p.scatter_indices_batching_dims = r.dims("scatter_indices_batching_dims");
  p.update_window_dims = r.dims("update_window_dims");
  check_batching(r, p.operand_batching_dims, p.scatter_indices_batching_dims,
                 p.inserted_window_dims, p.scatter_dims_to_operand_dims);
  return made(p);
}

Read read_bits(Reader& r) {
  RandomBitsParams p;
  p.bit_width = r.integer("bit_width");
  if (r.has("of")) p.of = r.shape("of");
  p.shape = r.shape("shape");
  return made(p);
}
Read read_gamma_sample(Reader& r) {
  GammaSampleParams p;
  p.log_space = r.flag("log_space");
  return made(p);
}
Read read_split(Reader& r) {
  RandomSplitParams p;
  p.shape = r.shape("shape");
  return made(p);
}

Read read_print(Reader& r) {
  PrintParams p;
  p.format = r.quoted("fmt");
  std::vector<debug::detail::PrintArgument> arguments;  // of these only the types are used
  for (const ShapedArray& t : r.operands())
    arguments.push_back({Array::first(new TypeNode(t)), {}});
  debug::detail::check_holes(p.format, arguments, {});
  return made(p);
}

constexpr const char* kLate = "only passes create it, when a program is planned";

}  // namespace

void register_op_syntax() {
  const auto plain = [](Primitive& p, int operands) {
    p.syntax = {operands, operands, nullptr, nullptr};
  };
  const auto some = [](Primitive& p, int least, int most, ReadParamsFn read) {
    p.syntax = {least, most, read, nullptr};
  };
#define SHMAP_PLAIN_1(name, domain, ...) plain(name##_p, 1);
#define SHMAP_PLAIN_2(name, domain, ...) plain(name##_p, 2);
  SHMAP_UNARY_OPS(SHMAP_PLAIN_1)
  SHMAP_PREDICATE_OPS(SHMAP_PLAIN_1)
  SHMAP_BINARY_OPS(SHMAP_PLAIN_2)
  SHMAP_COMPARE_OPS(SHMAP_PLAIN_2)
#undef SHMAP_PLAIN_1
#undef SHMAP_PLAIN_2
  plain(select_n_p, 3);
  plain(clamp_p, 3);
  plain(stop_gradient_p, 1);
  some(convert_element_type_p, 1, 1, read_convert);
  some(bitcast_convert_type_p, 1, 1, read_convert);

  some(broadcast_in_dim_p, 1, 1, read_broadcast);
  some(reshape_p, 1, 1, read_reshape);
  some(transpose_p, 1, 1, read_transpose);
  some(rev_p, 1, 1, read_rev);
  some(concatenate_p, 1, kAnyNumber, read_concatenate);
  some(pad_p, 2, 2, read_pad);
  some(iota_p, 0, 0, read_iota);
  some(slice_p, 1, 1, read_slice);
  some(dynamic_slice_p, 1, kAnyNumber, read_dynamic_slice);
  some(dynamic_update_slice_p, 2, kAnyNumber, nullptr);

  some(sort_p, 1, kAnyNumber, read_sort);
  some(top_k_p, 1, 1, read_top_k);
#define SHMAP_SYNTAX(name, domain) some(name##_p, 1, 1, read_cumulative);
  SHMAP_CUMULATIVES(SHMAP_SYNTAX)
#undef SHMAP_SYNTAX
#define SHMAP_SYNTAX(name, domain, primitive) some(primitive##_p, 1, 1, read_reduce);
  SHMAP_REDUCTIONS(SHMAP_SYNTAX)
#undef SHMAP_SYNTAX
  some(argmax_p, 1, 1, read_arg_reduce);
  some(argmin_p, 1, 1, read_arg_reduce);
  some(dot_general_p, 2, 2, read_dot);
  some(gather_p, 2, 2, read_gather_slices);
  for (Primitive* p : scatter_primitives()) some(*p, 3, 3, read_scatter_slices);
  some(random_bits_p, 1, 2, read_bits);
  some(random_split_p, 1, 1, read_split);
  plain(random_fold_in_p, 2);
  plain(random_wrap_p, 1);
  some(random_gamma_sample_p, 2, 2, read_gamma_sample);
  plain(random_unwrap_p, 1);
  plain(threefry2x32_p, 4);
  some(debug_print_p, 0, kAnyNumber, read_print);

  for (Primitive* p : {&product_p, &product_into_p, &fused_p, &fused_columns_p, &gather_reduce_p,
                       &concatenate_slices_p, &placed_slice_p, &flow_task_p, &branch_task_p})
    p->syntax = {0, kAnyNumber, nullptr, kLate};
}

}  // namespace shmap
