// x[...]: NumPy's indexing with ints, ranges, new dims and integer arrays.
#include <algorithm>

#include "core/ir/node.h"
#include "core/ops/gather_ops.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// One entry of the index, and the dim that it belongs to (a new dim belongs to none).
struct Term {
  Index::Kind kind;
  int dim = -1;
  std::int64_t integer = 0;
  Range range;
  Array array;
};

class Indexer {
 public:
  Indexer(const Array& x, std::span<const Index> indices)
      : x_(x), source_(indices.empty() ? SourceLine{} : indices[0].source) {
    type_ = checked_node(x, "an index", source_).type;
    terms_.reserve(indices.size() + static_cast<std::size_t>(type_.rank()));
    for (const Index& index : indices) add(index);
    if (dims_ > type_.rank()) {
      throw ValueError("an index of " + std::to_string(dims_) + " dims of an array of type " +
                       to_string(type_) + ", which has " + std::to_string(type_.rank()) +
                       ": leave some out" + at_line(source_));
    }
    while (dims_ < type_.rank()) terms_.push_back({Index::Kind::range, dims_++, 0, range(), {}});
  }

  Array run() {
    std::vector<const Array*> operands{&x_};
    for (const Term& t : terms_)
      if (t.kind == Index::Kind::array) operands.push_back(&t.array);
    const FunctionScope scope("x[...]", operands, source_);
    const bool gathers = std::any_of(terms_.begin(), terms_.end(), is_gather);
    take_static(gathers);
    if (gathers) return run_gather();
    take_dynamic();
    Shape shape;
    for (const Term& t : terms_) {
      if (t.kind == Index::Kind::range) shape.push_back(extent(t));
      if (t.kind == Index::Kind::new_dim) shape.push_back(1);
    }
    return bind_reshape(std::move(x_), shape, source_);
  }

 private:
  static bool is_gather(const Term& t) {
    return t.kind == Index::Kind::array && t.array.ndim() > 0;
  }
  static bool is_free(const Term& t) {  // has a dim of its own in the result
    return t.kind == Index::Kind::range || t.kind == Index::Kind::new_dim;
  }
  std::int64_t extent(const Term& t) const { return x_.shape()[static_cast<std::size_t>(t.dim)]; }

  void add(const Index& index) {
    Term t{index.kind, -1, index.integer, index.slice, index.array};
    if (t.kind != Index::Kind::new_dim) t.dim = dims_++;
    if (t.kind == Index::Kind::array) {
      const Node& node = checked_node(t.array, "an index", source_);
      if (!is_integer(node.type.dtype())) {
        throw TypeError(
            "an index of type " + to_string(node.type) + ": integers are wanted" +
            (node.type.dtype() == DType::bool_
                 ? ", since the shape of the result would depend on values; choose by a mask "
                   "with where(mask, x, y)"
                 : "; convert it with astype") +
            at_line(source_));
      }
      // A host int; what is computed, as the index of a loop, clamps.
      if (node.kind == NodeKind::literal && node.type.weak()) {
        t.kind = Index::Kind::integer;
        t.integer = convert(t.array, DType::i64, source_).item<std::int64_t>(source_);
      }
    }
    terms_.push_back(std::move(t));
  }

  std::int64_t checked_integer(const Term& t) const {
    const std::int64_t n = type_.dims()[static_cast<std::size_t>(t.dim)];
    if (t.integer < -n || t.integer >= n) {
      throw ValueError("an index is out of range: " + std::to_string(t.integer) + " in dim " +
                       std::to_string(t.dim) + " of extent " + std::to_string(n) +
                       " of an array of type " + to_string(type_) + ": wanted " +
                       std::to_string(-n) + " ... " + std::to_string(n - 1) + at_line(source_));
    }
    return t.integer < 0 ? t.integer + n : t.integer;
  }

  // What is known on the host: one slice, and one rev for the ranges that run backwards. Ints
  // beside index arrays are left to the gather, which they are part of.
  void take_static(bool gathers) {
    Dims start, limit, strides;
    RevParams rev;
    bool whole = true;
    for (const Term& t : terms_) {
      if (t.kind == Index::Kind::new_dim) continue;
      const std::int64_t n = type_.dims()[static_cast<std::size_t>(t.dim)];
      std::int64_t first = 0, end = n, step = 1;
      if (t.kind == Index::Kind::integer) {
        first = checked_integer(t);
        end = first + 1;
        if (gathers) {
          first = 0;
          end = n;
        }
      } else if (t.kind == Index::Kind::range) {
        step = clip_range(t.range, n, first, end);
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

  // The items of a range in ascending order: [first, end) in steps of |step|. Returns the step.
  std::int64_t clip_range(const Range& r, std::int64_t n, std::int64_t& first,
                          std::int64_t& end) const {
    if (r.step == 0) {
      throw ValueError("an index has a range with a step of 0: give another" + at_line(source_));
    }
    const bool up = r.step > 0;
    const auto clip = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + n : at, up ? 0 : -1, up ? n : n - 1);
    };
    const std::int64_t from = clip(r.start), to = clip(r.stop);
    first = end = 0;
    if (up ? from >= to : from <= to) return r.step;
    if (up) {
      first = from;
      end = to;
      return r.step;
    }
    const std::int64_t by = r.step < -n ? n : -r.step;
    const std::int64_t count = (from - to + by - 1) / by;
    first = from - (count - 1) * by;
    end = from + 1;
    return -by;
  }

  // Scalar arrays: one dynamic_slice.
  void take_dynamic() {
    const auto is_array = [](const Term& t) { return t.kind == Index::Kind::array; };
    if (std::none_of(terms_.begin(), terms_.end(), is_array)) return;
    std::vector<Array> starts;
    Shape sizes = x_.shape();
    for (const Term& t : terms_) {
      if (t.kind == Index::Kind::new_dim) continue;
      if (!is_array(t)) {
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

  // Index arrays, and ints beside them, broadcast together. Their dims stand where the first of
  // them stood, or in front where others come in between (NumPy).
  Array run_gather() {
    std::vector<Array> indices;
    std::vector<Shape> shapes;
    Dims dims;
    int before = 0;  // dims of the result in front of the first index
    bool apart = false, ended = false;
    for (const Term& t : terms_) {
      if (is_free(t)) {
        if (indices.empty()) ++before;
        ended = !indices.empty();
        continue;
      }
      apart = apart || ended;
      dims.push_back(t.dim);
      const std::int64_t n = extent(t);
      indices.push_back(t.kind == Index::Kind::integer
                            ? Array(checked_integer(t))
                            : wrap_indices(t.array, n, "an index", source_));
      shapes.push_back(indices.back().shape());
    }
    const Shape shape = broadcast_shapes(shapes, "index arrays", source_);
    unify(indices, shape);
    if (apart) before = 0;
    Shape result;
    const auto put_indices = [&] {
      for (std::int64_t e : shape) result.push_back(e);
    };
    int at = 0;  // dims of what is left of x in front of the indices' dims
    int free = 0;
    for (const Term& t : terms_) {
      if (!is_free(t)) continue;
      if (free == before) put_indices();
      if (free++ < before && t.kind == Index::Kind::range) ++at;
      result.push_back(t.kind == Index::Kind::range ? extent(t) : 1);
    }
    if (free == before) put_indices();
    Array items = gather_items(std::move(x_), indices, dims, at, GatherMode::clip, source_);
    return bind_reshape(std::move(items), result, source_);
  }

  // One shape for all, and one dtype, which holds what each holds.
  void unify(std::vector<Array>& indices, const Shape& shape) const {
    bool wide = type_.size() > INT32_MAX;
    for (const Array& i : indices) {
      const Node& node = *node_of(i);
      wide = wide || (node.kind != NodeKind::literal && node.type.dtype() != DType::i32 &&
                      itemsize(node.type.dtype()) >= 4);
    }
    for (Array& i : indices) {
      if (indices.size() > 1) i = convert(std::move(i), wide ? DType::i64 : DType::i32, source_);
      if (!(i.shape() == shape)) i = broadcast_exactly(std::move(i), shape, "an index", source_);
    }
  }

  Array x_;
  SourceLine source_;
  ShapedArray type_;
  std::vector<Term> terms_;
  int dims_ = 0;
};

}  // namespace

Array Array::operator[](const Index& index) const {
  return Indexer(*this, std::span<const Index>(&index, 1)).run();
}
Array Array::operator[](std::initializer_list<Index> indices) const {
  return Indexer(*this, std::span<const Index>(indices.begin(), indices.size())).run();
}

}  // namespace shmap
