#include "core/transforms/attention/attention_rows.h"

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
#include "shmap/checkpoint.h"
#include "shmap/control_flow.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// The memory for the scores of a block. Blocks of fewer rows would read and write the gradients of
// k and v, to which each block adds, more often.
constexpr std::int64_t kBlockBytes = 16 << 20;
constexpr std::int64_t kFewestRows = 16, kMostRows = 256;

Dims dims_of(std::vector<int> list) { return Dims(std::move(list)); }

class Loop {
 public:
  Loop(AttentionSizes sizes, DType dtype, double scale, bool causal, SourceLine source)
      : n_(sizes),
        dtype_(dtype),
        wide_(dtype == f64 ? f64 : f32),
        scale_(scale),
        causal_(causal),
        source_(source) {}

  // q: [batch, groups, shared, rows, depth]; k, v: [batch, groups, columns, …]; bias and mask:
  // empty, or [batch, groups, shared, rows, columns] with extents of 1 where they broadcast; first:
  // the number of the block's first row.
  Array block(const Array& q, const Array& k, const Array& v, const Array& first, const Array& bias,
              const Array& mask) const {
    DotParams p;
    p.lhs_batch = p.rhs_batch = dims_of({0, 1});
    p.lhs_contracting = dims_of({4});
    p.rhs_contracting = dims_of({3});
    if (dtype_ != wide_) p.preferred_element_type = wide_;
    Array s = bind_dot(q, k, p, source_) * number(scale_);
    if (bias.node()) s = s + astype(bias, wide_);
    const Array masked = number(masked_score(wide_));
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
    const Loop self = *this;
    const auto f = [self, biased, masks](std::vector<Array> x) {
      return self.block(x[0], x[1], x[2], x[3], biased ? x[4] : Array(),
                        masks ? x.back() : Array());
    };
    return checkpoint(f)(in);
  }

  Array blocks(const Array& q, const Array& k, const Array& v, const Array& bias, const Array& mask,
               std::int64_t trips, std::int64_t rows) const {
    // Makes blocks the first dim, over which the loop runs; an array that is the same for all rows
    // stays as it is.
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

  AttentionSizes n_;
  DType dtype_, wide_;
  double scale_;
  bool causal_;
  SourceLine source_;
};

}  // namespace

double masked_score(DType dtype) {
  return dtype == f64 ? -0.7 * std::numeric_limits<double>::max()
                      : -0.7 * std::numeric_limits<float>::max();
}

Array attention_rows(const AttentionSizes& sizes, const AttentionOperands& x, double scale,
                     bool causal, SourceLine source) {
  return Loop(sizes, x.q.dtype(), scale, causal, source).run(x.q, x.k, x.v, x.bias, x.mask);
}

}  // namespace shmap
