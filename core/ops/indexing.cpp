// x[...]: NumPy's indexing with ints, ranges, new dims, an ellipsis and integer arrays.
#include <algorithm>

#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather_ops.h"
#include "core/ops/index_terms.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

class Indexer {
 public:
  // `fill`: the value for indices out of range under Mode::fill_or_drop; null for the default fill
  // value.
  explicit Indexer(const Array& x, std::span<const Index> indices,
                   GatherScatterMode mode = GatherScatterMode::clip, const Operand* fill = nullptr)
      : x_(x),
        source_(fill              ? fill->source
                : indices.empty() ? SourceLine{}
                                  : indices[0].source),
        fills_(mode == GatherScatterMode::fill_or_drop),
        fill_(fill),
        type_(checked_node(x, "an index", source_).type),
        terms_(type_, indices, source_) {}

  Array run() {
    std::vector<const Array*> operands{&x_};
    for (const IndexTerm& t : terms_)
      if (t.kind == Index::Kind::array) operands.push_back(&t.array);
    if (fill_) operands.push_back(&fill_->value);
    const FunctionScope scope("x[...]", operands, source_);
    const bool gathers = fills_ ? terms_.has_arrays() : terms_.has_index_arrays();
    take_static(gathers);
    if (gathers) return run_gather();
    take_dynamic();
    Shape shape;
    for (const IndexTerm& t : terms_) {
      if (t.kind == Index::Kind::range) shape.push_back(extent(t));
      if (t.kind == Index::Kind::new_dim) shape.push_back(1);
    }
    return bind_reshape(std::move(x_), shape, source_);
  }

 private:
  static bool is_free(const IndexTerm& t) {  // has a dim of its own in the result
    return t.kind == Index::Kind::range || t.kind == Index::Kind::new_dim;
  }
  std::int64_t extent(const IndexTerm& t) const {
    return x_.shape()[static_cast<std::size_t>(t.dim)];
  }

  // Applies the entries that the host knows: one slice, and one rev for ranges with negative steps.
  // Ints beside index arrays are left to the gather.
  void take_static(bool gathers) {
    Dims start, limit, strides;
    RevParams rev;
    bool whole = true;
    for (const IndexTerm& t : terms_) {
      if (t.kind == Index::Kind::new_dim) continue;
      const std::int64_t n = type_.dims()[static_cast<std::size_t>(t.dim)];
      std::int64_t first = 0, end = n, step = 1;
      if (t.kind == Index::Kind::integer) {
        first = terms_.checked_integer(t);
        end = first + 1;
        if (gathers) {
          first = 0;
          end = n;
        }
      } else if (t.kind == Index::Kind::range) {
        step = terms_.clip_range(t.range, n, first, end);
        if (step < 0) rev.dimensions.push_back(t.dim);
      }
      start.push_back(first);
      limit.push_back(end);
      strides.push_back(step < 0 ? -step : step);
      whole = whole && first == 0 && end == n && strides.back() == 1;
    }
    if (!whole) x_ = bind_slice(std::move(x_), start, limit, strides, source_);
    if (!rev.dimensions.empty()) x_ = bind(rev_p, std::move(x_), rev, source_);
  }

  // Applies scalar arrays: one dynamic_slice.
  void take_dynamic() {
    if (!terms_.has_arrays()) return;
    std::vector<Array> starts;
    Shape sizes = x_.shape();
    for (const IndexTerm& t : terms_) {
      if (t.kind == Index::Kind::new_dim) continue;
      if (t.kind != Index::Kind::array) {
        starts.emplace_back(0);
        continue;
      }
      std::int64_t& size = sizes[static_cast<std::size_t>(t.dim)];
      if (size == 0) {
        throw ValueError("an index of dim " + std::to_string(t.dim) + " of an array of type " +
                         to_string(type_) + ", which has no elements" + at_line(source_));
      }
      size = 1;
      starts.push_back(t.array);
    }
    x_ = bind_dynamic_slice(std::move(x_), starts, sizes, source_);
  }

  // Gathers at index arrays, with ints beside them, all broadcast together. The dims of index
  // arrays are at the position of the first one, or in front where other entries separate the
  // arrays (NumPy).
  Array run_gather() {
    std::vector<Array> indices;
    std::vector<Shape> shapes;
    Dims dims, indices_at;  // of the result: the dims of the index arrays
    int before = 0;         // the number of the result's dims before those of the index arrays
    bool apart = false, ended = false;
    for (const IndexTerm& t : terms_) {
      if (is_free(t)) {
        if (indices.empty()) ++before;
        ended = !indices.empty();
        continue;
      }
      apart = apart || ended;
      dims.push_back(t.dim);
      const std::int64_t n = extent(t);
      indices.push_back(t.kind == Index::Kind::integer
                            ? Array(terms_.checked_integer(t))
                            : wrap_indices(t.array, n, "an index", source_));
      shapes.push_back(indices.back().shape());
    }
    const Shape shape = broadcast_shapes(shapes, "index arrays", source_);
    unify(indices, dims, shape);
    if (apart) before = 0;
    Shape result;
    const auto put_indices = [&] {
      for (std::int64_t e : shape) {
        indices_at.push_back(result.rank());
        result.push_back(e);
      }
    };
    int at = 0;  // the number of the remaining dims of x before the indices' dims
    int free = 0;
    for (const IndexTerm& t : terms_) {
      if (!is_free(t)) continue;
      if (free == before) put_indices();
      if (free++ < before && t.kind == Index::Kind::range) ++at;
      result.push_back(t.kind == Index::Kind::range ? extent(t) : 1);
    }
    if (free == before) put_indices();
    Array inside;
    if (fill_) inside = bind_broadcast(in_range(indices, dims), result, indices_at, source_);
    Array items = gather_items(std::move(x_), indices, dims, at,
                               fills_ && !fill_ ? GatherMode::fill : GatherMode::clip, source_);
    items = bind_reshape(std::move(items), result, source_);
    if (!fill_) return items;
    Array fill = convert_operand(fill_->value, type_.dtype(), "x.at(...).get", source_);
    fill = broadcast_exactly(std::move(fill), result, "x.at(...).get", source_);
    Array in[] = {std::move(inside), std::move(fill), std::move(items)};
    return bind(select_n_p, in, no_params, source_);
  }

  // Whether each index vector is in range: bools, of the indices' shape.
  Array in_range(const std::vector<Array>& indices, const Dims& dims) const {
    Array all;
    for (std::size_t k = 0; k < indices.size(); ++k) {
      const Array i = convert(indices[k], DType::i64, source_);
      const auto number = [&](std::int64_t n) { return convert(Array(n), DType::i64, source_); };
      const std::int64_t n = type_.dims()[static_cast<std::size_t>(dims[k])];
      const Array one = bind(bit_and_p, bind(ge_p, i, number(0), no_params, source_),
                             bind(lt_p, i, number(n), no_params, source_), no_params, source_);
      all = k == 0 ? one : bind(bit_and_p, all, one, no_params, source_);
    }
    return all;
  }

  // Broadcasts the indices to one shape, and converts them to a dtype that holds all of their
  // values. Those of u64 that are out of range become the extent, since i64 does not hold all of
  // them.
  void unify(std::vector<Array>& indices, const Dims& dims, const Shape& shape) const {
    bool wide = type_.size() > INT32_MAX;
    for (const Array& i : indices) {
      const Node& node = *node_of(i);
      wide = wide || (node.kind != NodeKind::literal && node.type.dtype() != DType::i32 &&
                      itemsize(node.type.dtype()) >= 4);
    }
    for (std::size_t k = 0; k < indices.size(); ++k) {
      Array& i = indices[k];
      if (indices.size() > 1) {
        if (i.dtype() == DType::u64) {
          const std::int64_t n = type_.dims()[static_cast<std::size_t>(dims[k])];
          Array extent = convert(Array(n), DType::u64, source_);
          i = bind(min_p, std::move(i), std::move(extent), no_params, source_);
        }
        i = convert(std::move(i), wide ? DType::i64 : DType::i32, source_);
      }
      if (!(i.shape() == shape)) i = broadcast_exactly(std::move(i), shape, "an index", source_);
    }
  }

  Array x_;
  SourceLine source_;
  bool fills_;
  const Operand* fill_;
  ShapedArray type_;
  IndexTerms terms_;
};

}  // namespace

Array Array::operator[](const Index& index) const {
  return Indexer(*this, std::span<const Index>(&index, 1)).run();
}
Array Array::operator[](std::initializer_list<Index> indices) const {
  return Indexer(*this, std::span<const Index>(indices.begin(), indices.size())).run();
}
Array IndexedArray::get(Mode mode) const { return Indexer(x_, indices_, mode).run(); }
Array IndexedArray::get(Mode mode, Operand fill_value) const {
  if (mode == Mode::clip) {
    throw ValueError(
        "x.at(...).get: a fill value was given, and the mode clip reads the nearest element in "
        "place of one out of range: use GatherScatterMode::fill_or_drop" +
        at_line(fill_value.source));
  }
  return Indexer(x_, indices_, mode, &fill_value).run();
}

}  // namespace shmap
