// ragged_all_to_all, a function of other collectives: the offsets and sizes go through an
// all_to_all, the rows through an all_gather or an all_to_all, whichever moves fewer, and gathers
// of rows put them in place. Derivatives, batching and both backends are those of these operations.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "collectives/scope.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather_ops.h"
#include "core/ops/promote.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

constexpr const char* kName = "ragged_all_to_all";
// The index operands, in the order of the arguments.
constexpr const char* kNames[] = {"input_offsets", "send_sizes", "output_offsets", "recv_sizes"};

// Slices of rows: where each lies in the sender's operand, how long it is, and where it goes in the
// receiver's output; i64[slices] each.
struct Slices {
  Array from, size, to;
};

// Of each row of an output: whether a slice covers it, the last slice that does, and the number of
// the slice's row in the operand less the row's own number. Where no slice covers the row, slice
// and shift are those of slice 0. Dims [groups, rows].
struct Rows {
  Array covered, slice, shift;
};

class RaggedAllToAll {
 public:
  // given: the index operands, each [slices], which vary over the axes.
  RaggedAllToAll(const std::array<Array, 4>& given, const Axes& axes, const Groups& groups,
                 int ranks, SourceLine source)
      : axes_(axes),
        groups_(groups),
        ranks_(ranks),
        slices_(given[0].shape()[0]),
        per_rank_(slices_ / ranks),
        source_(source) {
    std::vector<Array> lines;
    for (const Array& x : given)
      lines.push_back(
          bind_reshape(convert(representable(x), DType::i64, source_), {1, slices_}, source_));
    std::vector<Array> joined = lines;  // bind_concatenate consumes its operands
    const Array arrived = exchanged(bind_concatenate(joined, 0, source_), 1);
    const auto other = [&](std::int64_t k) {
      return bind_reshape(slice(operand_of(arrived), {k, 0}, {k + 1, slices_}), {slices_}, source_);
    };
    const auto own = [&](std::size_t k) { return bind_reshape(lines[k], {slices_}, source_); };
    received_ = {other(0), joint(min_p, other(1), own(3)), other(2)};
    sent_ = {own(0), joint(min_p, own(1), other(3)), own(2)};
  }

  Array operator()(const Array& operand, const Array& output) const {
    const std::int64_t n = operand.shape()[0], m = output.shape()[0];
    if (operand.size() == 0 || output.size() == 0) return output;
    const DType dtype = std::max({n * ranks_, m * ranks_, slices_}) <= INT32_MAX ? i32 : i64;
    const Rows in = rows_of(received_, 1, n, m, dtype);
    const Array number = bind_iota(dtype, {1, m}, 1, source_);
    const Array rank = joint(div_p, in.slice, literal(per_rank_));
    // The rows that may be wanted of each rank, one rank after the other, and which of them it is.
    Array rows, row;
    if (n <= m) {
      rows = detail::all_gather_leaf(
          operand, axes_, {.axis = 0, .tiled = true, .axis_index_groups = groups_}, source_);
      row = joint(add_p, joint(mul_p, rank, literal(n)), joint(add_p, number, in.shift));
    } else {
      const Rows out = rows_of(sent_, ranks_, n, m, dtype);
      const Array at = chosen(out.covered, joint(add_p, number, out.shift), literal(0));
      rows = exchanged(items(operand, bind_reshape(at, {ranks_ * m}, source_)), 0);
      row = joint(add_p, joint(mul_p, rank, literal(m)), number);
    }
    row = bind_reshape(chosen(in.covered, row, literal(0)), {m}, source_);
    Shape column = output.shape();
    for (std::size_t d = 1; d < column.size(); ++d) column[d] = 1;
    return chosen(bind_reshape(in.covered, column, source_), items(rows, row), output);
  }

 private:
  // The slices are cut into `groups` groups of equal length, one for each output. The sums below do
  // not overflow, and offsets and sizes that leave the arrays stay outside of them.
  Rows rows_of(const Slices& slices, std::int64_t groups, std::int64_t n, std::int64_t m,
               DType dtype) const {
    const auto within = [&](const Array& x, std::int64_t low, std::int64_t high) {
      return clip(operand_of(x), operand_of(literal(low)), operand_of(literal(high)));
    };
    const Array from = within(slices.from, -kFar, kFar);
    const Array to = within(slices.to, -kFar, kFar);
    const Array size = within(slices.size, 0, kFar);
    const Array shift = joint(sub_p, from, to);
    // Row r is covered where to <= r < to + size, and 0 <= r + shift < n.
    const Array first = joint(max_p, to, joint(sub_p, literal(0), shift));
    const Array last = joint(min_p, joint(add_p, to, size), joint(sub_p, literal(n), shift));

    const Shape shape = {groups, 1, slices_ / groups};
    const auto narrow = [&](const Array& x, std::int64_t low, std::int64_t high) {
      return convert(within(x, low, high), dtype, source_);
    };
    const auto row_of = [&](const Array& x) {
      return bind_reshape(narrow(x, 0, m), shape, source_);
    };
    const Array row = bind_iota(dtype, {1, m, 1}, 1, source_);
    const Array inside =
        joint(bit_and_p, joint(ge_p, row, row_of(first)), joint(lt_p, row, row_of(last)));
    const Array number = bind_reshape(bind_iota(dtype, {slices_}, 0, source_), shape, source_);
    const Array slice =
        reduce(reduce_max_p, chosen(inside, number, literal(-1)), Dims{2}, false, source_);
    Rows rows;
    rows.covered = joint(ge_p, slice, literal(0));
    rows.slice = joint(max_p, slice, literal(0));
    rows.shift = items(narrow(shift, -m, n), rows.slice);
    return rows;
  }

  // An offset or a size of 2^63 or more would become a negative i64: a slice outside of the array
  // would begin before it, and reach into it. What is beyond kFar is beyond every array.
  Array representable(const Array& x) const {
    if (x.dtype() != DType::u64) return x;
    return joint(min_p, x, scalar_of(DType::u64, static_cast<double>(kFar), source_));
  }

  // Cuts dim `dim` into parts, and sends part r to rank r.
  Array exchanged(const Array& x, int dim) const {
    return detail::all_to_all_leaf(x, axes_, dim, dim,
                                   {.tiled = true, .axis_index_groups = groups_}, source_);
  }
  // The items of x along dim 0 with these numbers, which are in range.
  Array items(const Array& x, const Array& numbers) const {
    return gather_items(x, {numbers}, Dims{0}, 0, GatherMode::clip, source_);
  }
  Array joint(const Primitive& primitive, const Array& a, const Array& b) const {
    return bind_joint(primitive, a, b, source_);
  }
  Array chosen(const Array& which, const Array& on_true, const Array& on_false) const {
    return where(operand_of(which), operand_of(on_true), operand_of(on_false));
  }
  static Array literal(std::int64_t value) { return Array(value); }
  Operand operand_of(const Array& x) const { return Operand(x, source_.file, source_.line); }

  static constexpr std::int64_t kFar = std::int64_t{1} << 60;

  const Axes& axes_;
  const Groups& groups_;
  const std::int64_t ranks_, slices_, per_rank_;
  const SourceLine source_;
  Slices received_, sent_;
};

// ---- errors

[[noreturn]] void fail_value(const std::string& text, SourceLine source) {
  throw ValueError(std::string(kName) + ": " + text + at_line(source));
}

void check_rows(const ShapedArray& operand, const ShapedArray& output, SourceLine source) {
  const std::string both =
      "operand has type " + to_string(operand) + " and output " + to_string(output);
  if (operand.dtype() != output.dtype()) {
    throw TypeError(std::string(kName) + ": " + both +
                    ": the received rows replace rows of output, whose dtype must be that of "
                    "operand; convert one of the two with astype" +
                    at_line(source));
  }
  if (operand.rank() == 0 || output.rank() == 0) {
    fail_value(both + ": both need a dim 0, whose elements are the rows that are sent", source);
  }
  bool fits = operand.rank() == output.rank();
  for (int d = 1; fits && d < operand.rank(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    fits = operand.dims()[at] == output.dims()[at];
  }
  if (!fits) {
    fail_value(both +
                   ": the two may differ in the number of their rows, dim 0, and must agree in all "
                   "other dims",
               source);
  }
}

void check_indices(const std::array<Array, 4>& given, int ranks, const Axes& axes,
                   const Groups& groups, SourceLine source) {
  const auto type = [&](std::size_t k) -> const ShapedArray& {
    return checked_node(given[k], kName, source).type;
  };
  for (std::size_t k = 0; k < given.size(); ++k) {
    const std::string has = std::string(kNames[k]) + " has type " + to_string(type(k));
    if (!is_integer(type(k).dtype())) {
      throw TypeError(std::string(kName) + ": " + has +
                      ": offsets and sizes are integers, which count rows; convert it with "
                      "astype(x, i32)" +
                      at_line(source));
    }
    if (type(k).rank() != 1) {
      fail_value(has +
                     ": wanted one dim, with an element for each slice; reshape(x, {-1}) makes "
                     "one dim of several",
                 source);
    }
    const std::int64_t slices = type(k).dims()[0];
    if (slices != type(0).dims()[0]) {
      fail_value(has + " and " + kNames[0] + " " + to_string(type(0)) +
                     ": all four need as many elements, one for each slice that is sent or "
                     "received",
                 source);
    }
    if (slices == 0 || slices % ranks != 0) {
      fail_value(has + ", and its " + std::to_string(slices) +
                     " slices cannot be shared evenly among the " + describe_ranks(axes, ranks) +
                     (groups.empty() ? "" : " of each group") + ": a multiple of " +
                     std::to_string(ranks) +
                     " is wanted, as many slices for each rank; a slice of size 0 sends nothing",
                 source);
    }
  }
}

}  // namespace

namespace detail {

std::vector<Array> ragged_all_to_all_leaves(const std::vector<Array>& operands,
                                            const std::vector<Array>& outputs,
                                            const std::array<Array, 4>& indices, const Axes& axes,
                                            const RaggedAllToAllOptions& options,
                                            SourceLine source) {
  const AxesInScope scope(axes, kName, source);
  const Groups& groups = options.axis_index_groups;
  const int ranks = group_size(groups, scope.ranks, kName, axes, source);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    check_rows(checked_node(operands[i], kName, source).type,
               checked_node(outputs[i], kName, source).type, source);
  }
  check_indices(indices, ranks, axes, groups, source);

  // The casts that the trace makes; where it makes none, what does not vary is an error.
  std::vector<Array> all(indices.begin(), indices.end());
  all.insert(all.end(), operands.begin(), operands.end());
  all.insert(all.end(), outputs.begin(), outputs.end());
  for (Array& x : all) {
    x = shmap::cast_to_varying(x, axes, scope, kName, source);
    if (scope.mask == 0) continue;
    at_source(source, [&] {
      require_varying(checked_node(x, kName, source).type, axes, scope.mask, *scope.env, kName);
    });
  }
  const FunctionScope function(kName, std::span<const Array>(all), source);

  const std::array<Array, 4> varying = {all[0], all[1], all[2], all[3]};
  const RaggedAllToAll exchange(varying, axes, groups, ranks, source);
  std::vector<Array> results;
  for (std::size_t i = 0; i < operands.size(); ++i)
    results.push_back(exchange(all[4 + i], all[4 + operands.size() + i]));
  return results;
}

void throw_unlike_trees(SourceLine source) {
  throw TypeError(std::string(kName) +
                  ": the trees operand and output have different structures: for each leaf of "
                  "operand one of output is wanted, which receives its rows; sizes of containers, "
                  "keys and static members must agree" +
                  at_line(source));
}

}  // namespace detail
}  // namespace shmap
