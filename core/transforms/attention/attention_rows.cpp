// attention: a loop over blocks of rows, each of which is computed again where it is
// differentiated.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/ops/dot.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/attention.h"
#include "shmap/checkpoint.h"
#include "shmap/control_flow.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// What the scores of a block may take. Fewer rows would have the gradients of k and v, to which
// each block adds, go through memory more often.
constexpr std::int64_t kBlockBytes = 16 << 20;
constexpr std::int64_t kFewestRows = 16, kMostRows = 256;

struct Sizes {
  std::int64_t batch, rows, heads, depth, columns, groups, v_depth;
  std::int64_t shared() const { return heads / groups; }  // heads of q that use one of k
};

Dims dims_of(std::vector<int> list) { return Dims(std::move(list)); }

class Attention {
 public:
  Attention(Sizes sizes, DType dtype, double scale, bool causal, SourceLine source)
      : n_(sizes),
        dtype_(dtype),
        wide_(dtype == f64 ? f64 : f32),
        scale_(scale),
        causal_(causal),
        source_(source) {}

  // q: [batch, groups, shared, rows, depth]; k, v: [batch, groups, columns, …]; bias and mask, or
  // what is empty: [batch, groups, shared, rows, columns] or 1; first: the number of the first row.
  Array block(const Array& q, const Array& k, const Array& v, const Array& first, const Array& bias,
              const Array& mask) const {
    DotParams p;
    p.lhs_batch = p.rhs_batch = dims_of({0, 1});
    p.lhs_contracting = dims_of({4});
    p.rhs_contracting = dims_of({3});
    if (dtype_ != wide_) p.preferred_element_type = wide_;
    Array s = bind_dot(q, k, p, source_) * number(scale_);
    if (bias.node()) s = s + astype(bias, wide_);
    const Array masked = number(wide_ == f64 ? -0.7 * std::numeric_limits<double>::max()
                                             : -0.7 * std::numeric_limits<float>::max());
    if (mask.node()) s = where(mask, s, masked);
    if (causal_) {
      const std::int64_t rows = q.shape()[3];
      const Array row = reshape(iota(i32, rows), {rows, 1}) + first;
      s = where(row >= iota(i32, n_.columns), s, masked);
    }
    DotParams weighted;
    weighted.lhs_batch = weighted.rhs_batch = dims_of({0, 1});
    weighted.lhs_contracting = dims_of({4});
    weighted.rhs_contracting = dims_of({2});
    return bind_dot(astype(softmax(s), dtype_), v, weighted, source_);
  }

  Array run(const Array& q, const Array& k, const Array& v, const Array& bias,
            const Array& mask) const {
    const std::int64_t row_bytes = n_.batch * n_.heads * n_.columns * itemsize(wide_);
    std::int64_t rows =
        std::clamp(kBlockBytes / std::max<std::int64_t>(row_bytes, 1), kFewestRows, kMostRows);
    rows -= rows % kFewestRows;
    if (n_.rows <= rows || row_bytes == 0) return block(q, k, v, Array(0), bias, mask);
    const std::int64_t trips = n_.rows / rows, whole = trips * rows;
    std::vector<Array> out{blocks(q, k, v, bias, mask, trips, rows)};
    if (whole < n_.rows) {
      const auto rest = [&](const Array& x) {
        return x.node() && x.shape()[3] != 1 ? slice_dim(x, 3, whole, n_.rows, source_) : x;
      };
      out.push_back(
          checkpointed(rest(q), k, v, Array(static_cast<int>(whole)), rest(bias), rest(mask)));
    }
    return concatenate(out, 3);
  }

 private:
  Array number(double x) const { return convert(Array(x), wide_, source_); }

  Array checkpointed(const Array& q, const Array& k, const Array& v, const Array& first,
                     const Array& bias, const Array& mask) const {
    std::vector<Array> in{q, k, v, first};
    for (const Array* x : {&bias, &mask})
      if (x->node()) in.push_back(*x);
    const bool biased = bias.node(), masks = mask.node();
    const Attention self = *this;
    const auto f = [self, biased, masks](std::vector<Array> x) {
      return self.block(x[0], x[1], x[2], x[3], biased ? x[4] : Array(),
                        masks ? x.back() : Array());
    };
    return checkpoint(f)(in);
  }

  Array blocks(const Array& q, const Array& k, const Array& v, const Array& bias, const Array& mask,
               std::int64_t trips, std::int64_t rows) const {
    // Blocks in front, to be taken one by one; what is the same for all rows stays as it is.
    const auto cut = [&](const Array& x) {
      Shape shape = x.shape();
      Array y = slice_dim(x, 3, 0, trips * rows, source_);
      y = reshape(y, {shape[0], shape[1], shape[2], trips, rows, shape[4]});
      return transpose(y, {3, 0, 1, 2, 4, 5});
    };
    std::vector<Array> xs{cut(q), iota(i32, trips) * static_cast<int>(rows)};
    const auto varies = [](const Array& x) { return x.node() && x.shape()[3] != 1; };
    const bool cuts_bias = varies(bias), cuts_mask = varies(mask);
    if (cuts_bias) xs.push_back(cut(bias));
    if (cuts_mask) xs.push_back(cut(mask));
    const auto body = [&](std::vector<Array> carry, std::vector<Array> x) {
      const Array b = cuts_bias ? x[2] : bias, m = cuts_mask ? x.back() : mask;
      return std::pair{carry, checkpointed(x[0], k, v, x[1], b, m)};
    };
    const Array y = scan(body, std::vector<Array>{}, xs).second;
    const Array in_order = transpose(y, {1, 2, 3, 0, 4, 5});
    return reshape(in_order, {n_.batch, n_.groups, n_.shared(), trips * rows, n_.v_depth});
  }

  Sizes n_;
  DType dtype_, wide_;
  double scale_;
  bool causal_;
  SourceLine source_;
};

[[noreturn]] void refuse(const std::string& why, SourceLine source) {
  throw ValueError("attention: " + why + at_line(source));
}

// As [batch, groups, shared, rows, columns], each 1 where it is the same along it; or empty.
Array as_scores(const char* what, const Array& x, const Sizes& n, SourceLine source) {
  if (!x.node()) return x;
  const ShapedArray type = x.type();
  const std::int64_t wanted[] = {n.batch, n.heads, n.rows, n.columns};
  std::int64_t extents[] = {1, 1, 1, 1};
  const int rank = type.rank();
  for (int d = 0; d < rank; ++d) {
    const std::int64_t extent = type.shape()[static_cast<std::size_t>(d)];
    const int at = d + 4 - rank;
    if (at < 0 || (extent != 1 && extent != wanted[at])) {
      refuse(std::string("the ") + what + " of type " + to_string(type) +
                 " does not fit scores of " +
                 to_string(Shape{n.batch, n.heads, n.rows, n.columns}) +
                 " (batch, heads, rows of q, rows of k): each of its last dims must have that "
                 "extent or 1",
             source);
    }
    extents[at] = extent;
  }
  const bool of_heads = extents[1] != 1;
  return reshape(
      x, {extents[0], of_heads ? n.groups : 1, of_heads ? n.shared() : 1, extents[2], extents[3]});
}

}  // namespace

Array attention(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  const SourceLine source = q.source;
  const FunctionScope scope("attention", {&q.value, &k.value, &v.value}, source);
  promote(q, k, "attention");
  promote(q, v, "attention");
  promote(k, v, "attention");
  const ShapedArray tq = type_of(q, "attention"), tk = type_of(k, "attention"),
                    tv = type_of(v, "attention");
  const std::string types = "q of type " + to_string(tq) + ", k of type " + to_string(tk) +
                            " and v of type " + to_string(tv);
  if (!is_floating(tq.dtype())) {
    throw TypeError("attention: " + types + ": floats are wanted; convert them with astype" +
                    at_line(source));
  }
  const int rank = tq.rank();
  if ((rank != 3 && rank != 4) || tk.rank() != rank || tv.rank() != rank)
    refuse(types + ": [batch, row, head, feature] is wanted of each, or [row, head, feature]",
           source);
  const auto extent = [&](const ShapedArray& t, int d) {
    return d == 0 ? (rank == 3 ? 1 : t.shape()[0])
                  : t.shape()[static_cast<std::size_t>(d + rank - 4)];
  };
  const Sizes n{extent(tq, 0), extent(tq, 1), extent(tq, 2), extent(tq, 3),
                extent(tk, 1), extent(tk, 2), extent(tv, 3)};
  if (extent(tk, 0) != n.batch || extent(tv, 0) != n.batch)
    refuse(types + ": their batch dims must be equal", source);
  if (extent(tk, 3) != n.depth) refuse(types + ": q and k must have equally many features", source);
  if (extent(tv, 1) != n.columns || extent(tv, 2) != n.groups)
    refuse(types + ": k and v must have equally many rows and heads", source);
  if (n.groups == 0 || n.heads % n.groups != 0) {
    refuse(types + ": the " + std::to_string(n.heads) + " heads of q must be a multiple of the " +
               std::to_string(n.groups) + " of k and v",
           source);
  }
  if (options.mask.node() && options.mask.dtype() != bool_) {
    throw TypeError("attention: the mask of type " + to_string(options.mask.type()) +
                    ": bools are wanted" + at_line(source));
  }
  const double scale = options.scale.value_or(
      1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(n.depth, 1))));
  const Array x = transpose(reshape(q.value, {n.batch, n.rows, n.groups, n.shared(), n.depth}),
                            {0, 2, 3, 1, 4});
  const Array key =
      transpose(reshape(k.value, {n.batch, n.columns, n.groups, n.depth}), {0, 2, 1, 3});
  const Array value =
      transpose(reshape(v.value, {n.batch, n.columns, n.groups, n.v_depth}), {0, 2, 1, 3});
  const Array y = Attention(n, tq.dtype(), scale, options.is_causal, source)
                      .run(x, key, value, as_scores("bias", options.bias, n, source),
                           as_scores("mask", options.mask, n, source));
  const Array in_order = transpose(y, {0, 3, 1, 2, 4});
  return rank == 3 ? reshape(in_order, {n.rows, n.heads, n.v_depth})
                   : reshape(in_order, {n.batch, n.rows, n.heads, n.v_depth});
}

}  // namespace shmap
