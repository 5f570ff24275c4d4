// The programs of overlapped products: one product per step, and the communication beside it.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/float_format.h"
#include "core/ops/dot.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rule_ops.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "overlap/overlap.h"
#include "shmap/collectives.h"

namespace shmap {

namespace {

using Pairs = std::vector<std::pair<int, int>>;

// The product of pieces of the operands, with the dims in the order of the spec's result.
class PieceProduct {
 public:
  explicit PieceProduct(const OverlapSpec& spec) {
    if (!try_order(spec.a, spec.b, spec.out)) {
      swapped_ = true;
      if (!try_order(spec.b, spec.a, spec.out)) {
        swapped_ = false;
        try_order(spec.a, spec.b, spec.out);
      }
    }
  }

  Array operator()(const Array& a, const Array& b, bool wide, SourceLine source) const {
    DotParams params = params_;
    const DType dtype = node_of(a)->type.dtype();
    if (wide && is_half(dtype)) params.preferred_element_type = DType::f32;
    Array y = swapped_ ? bind_dot(b, a, params, source) : bind_dot(a, b, params, source);
    return bind_transpose(std::move(y), order_, source);
  }

 private:
  // True if dot_general returns the dims in the result's order.
  bool try_order(const std::string& left, const std::string& right, const std::string& out) {
    std::vector<int> lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
    std::string batch, free;
    for (std::size_t d = 0; d < left.size(); ++d) {
      const int other = place_of(right, left[d]);
      if (other < 0) {
        free += left[d];
      } else if (place_of(out, left[d]) >= 0) {
        lhs_batch.push_back(static_cast<int>(d));
        rhs_batch.push_back(other);
        batch += left[d];
      } else {
        lhs_contracting.push_back(static_cast<int>(d));
        rhs_contracting.push_back(other);
      }
    }
    for (char l : right)
      if (place_of(left, l) < 0) free += l;
    const std::string made = batch + free;
    params_.lhs_contracting = Dims(lhs_contracting);
    params_.rhs_contracting = Dims(rhs_contracting);
    params_.lhs_batch = Dims(lhs_batch);
    params_.rhs_batch = Dims(rhs_batch);
    std::vector<std::int64_t> order;
    for (char l : out) order.push_back(place_of(made, l));
    order_ = Dims(order);
    return made == out;
  }

  DotParams params_;
  Dims order_;
  bool swapped_ = false;
};

class Rings {
 public:
  Rings(const OverlapSpec& spec, const Array& a, const Array& b, SourceLine source)
      : spec_(spec), n_(spec.ranks), a_(a), b_(b), source_(source), op_(source), product_(spec) {
    const Shape &da = node_of(a)->type.dims(), &db = node_of(b)->type.dims();
    part_ = extent_of(spec, spec.cut(), da, db) / n_;
  }

  Array gather(bool both) {
    Array first = travelling(), second;
    index_ = rank_index();
    const std::int64_t half = both && part_ > 1 ? (part_ + 1) / 2 : part_;
    const bool two = half < part_;
    const int dim = place_of(spec_.labels(spec_.operand), spec_.part);
    for (int step = 0; step < n_; ++step) {
      if (step == 0) {
        const Array own = first;
        if (two) {
          second = slice_dim(first, dim, half, part_, source_);
          first = slice_dim(first, dim, 0, half, source_);
        }
        if (n_ > 1) send_both(first, second);
        add_part(own, start_at(0), part_);
        continue;
      }
      const Array here = std::move(first), there = std::move(second);
      first = here;
      second = there;
      if (step + 1 < n_) send_both(first, second);
      add_part(here, start_at(step), half);
      if (two) add_part(there, start_at(-step, half), part_ - half);
    }
    return finish();
  }

  Array scatter(bool both) {
    index_ = rank_index();
    const std::int64_t half = both && part_ > 1 ? (part_ + 1) / 2 : part_;
    const bool two = half < part_;
    Array first, second;
    for (int step = 0; step < n_; ++step) {
      add_to(first, start_at(-step - 1), half, +1);
      if (two) add_to(second, start_at(step + 1, half), part_ - half, -1);
    }
    if (two) {
      Array whole[] = {std::move(first), std::move(second)};
      first = join(whole, place_of(spec_.out, spec_.part));
    }
    return convert(std::move(first), dtype(), source_);
  }

  // Sends each piece directly to the rank that needs it, at the distance `shift`.
  Array exchange(bool both) {
    const Array whole = travelling();
    index_ = rank_index();
    const std::string& labels = spec_.labels(spec_.operand);
    const int split = place_of(labels, spec_.part);
    const std::int64_t width = node_of(whole)->type.dims()[static_cast<std::size_t>(split)] / n_;
    for (const int shift : shifts(both)) {
      Array piece = cut(whole, labels, spec_.part, at(shift, width), width);
      if (shift != 0) piece = send(std::move(piece), shift);
      add_part(piece, start_at(-shift), part_);
    }
    return finish();
  }

  Array exchange_result(bool both) {
    index_ = rank_index();
    Array out;
    std::vector<int> order = shifts(both);
    std::rotate(order.begin(), order.begin() + 1, order.end());  // other ranks' pieces come first,
                                                                 // since those ranks wait for them
    for (const int shift : order) {
      const Array start = start_at(shift);
      Array y = product_(cut(a_, spec_.a, spec_.part, start, part_),
                         cut(b_, spec_.b, spec_.part, start, part_), false, source_);
      if (shift != 0) y = send(std::move(y), shift);
      const Shape& shape = node_of(y)->type.dims();
      const std::int64_t width = shape[static_cast<std::size_t>(place_of(spec_.out, spec_.joined))];
      if (!out.node()) out = unwritten(shape, spec_.joined);
      out = put(std::move(out), std::move(y), spec_.joined, at(-shift, width));
    }
    return out;
  }

 private:
  // This rank's number, from which the starts of pieces are computed: as i64 where a dim that
  // consists of all ranks' pieces may be too large for i32.
  Array rank_index() const {
    std::int64_t largest = 0;
    for (const Array* x : {&a_, &b_})
      for (const std::int64_t extent : node_of(*x)->type.dims())
        largest = std::max(largest, extent);
    const Array index = axis_index(spec_.axes, source_);
    return largest > INT32_MAX / n_ ? convert(index, i64, source_) : index;
  }
  Array travelling() const { return spec_.operand == 0 ? a_ : b_; }
  DType dtype() const { return node_of(a_)->type.dtype(); }

  // The order of distances: 0 first; then 1, 2, … or 1, n - 1, 2, n - 2, …
  std::vector<int> shifts(bool both) const {
    std::vector<int> out{0};
    for (int low = 1, high = n_ - 1; low <= high; ++low) {
      out.push_back(low);
      if (both && low < high) out.push_back(high--);
    }
    return out;
  }

  // The start of the piece of the rank at distance `shift`: (index + shift mod n) × size.
  Array at(int shift, std::int64_t size) {
    shift = ((shift % n_) + n_) % n_;
    Array rank = index_;
    if (shift != 0) {
      rank = op_(add_p, rank, op_.number(shift, rank));
      rank = op_(rem_p, rank, op_.number(n_, rank));
    }
    return size == 1 ? rank : op_(mul_p, rank, op_.number(static_cast<double>(size), rank));
  }
  Array start_at(int shift, std::int64_t offset = 0) {
    Array start = at(shift, part_);
    return offset == 0 ? start : op_(add_p, start, op_.number(static_cast<double>(offset), start));
  }

  // Sends x from each rank r to rank r + shift.
  Array send(Array x, int shift) const {
    Pairs pairs;
    for (int r = 0; r < n_; ++r) pairs.emplace_back(r, ((r + shift) % n_ + n_) % n_);
    const Array given = std::move(x);
    return detail::ppermute_leaf(given, spec_.axes, pairs, source_);
  }
  void send_both(Array& first, Array& second) const {
    first = send(std::move(first), -1);
    if (second.node()) second = send(std::move(second), +1);
  }

  std::vector<Array> starts(std::size_t rank, int dim, const Array& start) const {
    std::vector<Array> out(rank, op_.number(0, start));
    out[static_cast<std::size_t>(dim)] = start;
    return out;
  }
  // Items [start, start + size) along the dim `label`; x itself if it does not have that dim.
  Array cut(const Array& x, const std::string& labels, char label, const Array& start,
            std::int64_t size) const {
    const int dim = place_of(labels, label);
    if (dim < 0) return x;
    Shape sizes = node_of(x)->type.dims();
    sizes[static_cast<std::size_t>(dim)] = size;
    return bind_dynamic_slice(x, starts(sizes.size(), dim, start), sizes, source_);
  }
  Array put(Array whole, Array part, char label, const Array& start) const {
    const std::vector<Array> at =
        starts(node_of(whole)->type.dims().size(), place_of(spec_.out, label), start);
    return dynamic_update_slice(Operand(std::move(whole), source_.file, source_.line),
                                Operand(std::move(part), source_.file, source_.line), at);
  }
  // Zeros for all pieces, one of which has this shape.
  Array unwritten(Shape shape, char label) const {
    shape[static_cast<std::size_t>(place_of(spec_.out, label))] *= n_;
    return empty(shape, dtype(), source_);
  }
  Array join(std::span<Array> parts, int dim) const {
    return bind_concatenate(parts, dim, source_);
  }

  // Multiplies with the piece that begins at `start`, and writes the product there, or adds it to
  // the result.
  void add_part(const Array& part, const Array& start, std::int64_t size) {
    const bool first = spec_.operand == 0;
    const bool placed = place_of(spec_.out, spec_.cut()) >= 0;
    const Array other =
        cut(first ? b_ : a_, spec_.labels(1 - spec_.operand), spec_.cut(), start, size);
    Array y = product_(first ? part : other, first ? other : part, !placed, source_);
    if (!placed) {
      result_ = result_.node() ? op_(add_p, result_, y) : std::move(y);
      return;
    }
    if (!result_.node()) {
      Shape shape = node_of(y)->type.dims();
      shape[static_cast<std::size_t>(place_of(spec_.out, spec_.cut()))] = part_;
      result_ = unwritten(shape, spec_.cut());
    }
    result_ = put(std::move(result_), std::move(y), spec_.cut(), start);
  }
  Array finish() { return convert(std::move(result_), dtype(), source_); }

  // Adds this rank's product to the partial sum that it receives for the piece at `start`.
  void add_to(Array& total, const Array& start, std::int64_t size, int shift) {
    Array y = product_(cut(a_, spec_.a, spec_.part, start, size),
                       cut(b_, spec_.b, spec_.part, start, size), true, source_);
    if (!total.node()) {
      total = std::move(y);
      return;
    }
    Array came = send(std::move(total), shift);
    Array in[] = {std::move(came), std::move(y)};
    total = bind(add_p, in, no_params, source_);
  }

  const OverlapSpec& spec_;
  const int n_;
  const Array &a_, &b_;
  const SourceLine source_;
  const RuleOps op_;
  const PieceProduct product_;
  std::int64_t part_ = 0;  // a rank's extent of the dim that is cut
  Array index_, result_;
};

Array plain_ops(const OverlapSpec& spec, const Array& a, const Array& b, SourceLine source) {
  const PieceProduct product(spec);
  const auto both = [&](const Array& moved) {
    return product(spec.operand == 0 ? moved : a, spec.operand == 0 ? b : moved, false, source);
  };
  const auto dim = [&](const std::string& labels, char l) { return place_of(labels, l); };
  switch (spec.kind) {
    case OverlapKind::gather:
      return both(detail::all_gather_leaf(
          spec.operand == 0 ? a : b, spec.axes,
          {.axis = dim(spec.labels(spec.operand), spec.part), .tiled = true}, source));
    case OverlapKind::exchange: {
      const std::string& labels = spec.labels(spec.operand);
      return both(detail::all_to_all_leaf(spec.operand == 0 ? a : b, spec.axes,
                                          dim(labels, spec.part), dim(labels, spec.joined),
                                          {.tiled = true}, source));
    }
    case OverlapKind::scatter:
      return detail::psum_scatter_leaf(
          product(a, b, false, source), spec.axes,
          {.scatter_dimension = dim(spec.out, spec.part), .tiled = true}, source);
    default:
      return detail::all_to_all_leaf(product(a, b, false, source), spec.axes,
                                     dim(spec.out, spec.part), dim(spec.out, spec.joined),
                                     {.tiled = true}, source);
  }
}

}  // namespace

Array overlapped_ops(const OverlapSpec& spec, Overlap form, const Array& a, const Array& b,
                     SourceLine source) {
  if (form == Overlap::none) return plain_ops(spec, a, b, source);
  Rings rings(spec, a, b, source);
  const bool both = form == Overlap::two_rings;
  switch (spec.kind) {
    case OverlapKind::gather:
      return rings.gather(both);
    case OverlapKind::scatter:
      return rings.scatter(both);
    case OverlapKind::exchange:
      return rings.exchange(both);
    default:
      return rings.exchange_result(both);
  }
}

}  // namespace shmap
