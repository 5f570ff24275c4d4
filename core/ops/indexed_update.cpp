// x.at(...).set(y) and its kin: NumPy's indexed assignment, as new arrays.
#include <algorithm>

#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather_ops.h"
#include "core/ops/index_terms.h"
#include "core/ops/promote.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

constexpr const char* kNames[] = {"x.at(...).set", "x.at(...).add", "x.at(...).mul",
                                  "x.at(...).min", "x.at(...).max"};

// What a dim of x is for an update.
struct DimUpdate {
  enum Kind { whole, range, strided, integer, array } kind = whole;
  std::int64_t first = 0, count = 0, step = 1;  // step < 0: from first + (count - 1) * |step| down
  std::size_t term = 0;
};

class Updater {
 public:
  Updater(Array x, std::span<const Index> indices, ScatterKind kind, Operand y)
      : x_(std::move(x)),
        y_(std::move(y.value)),
        source_(y.source),
        kind_(kind),
        what_(kNames[static_cast<int>(kind)]),
        type_(checked_node(x_, what_, source_).type),
        terms_(type_, indices, source_) {}

  Array run() {
    checked_node(y_, what_, source_);
    std::vector<const Array*> operands{&x_, &y_};
    for (const IndexTerm& t : terms_)
      if (t.kind == Index::Kind::array) operands.push_back(&t.array);
    const FunctionScope scope(what_, operands, source_);
    measure();
    y_ = convert_operand(std::move(y_), type_.dtype(), what_, source_);
    y_ = broadcast_exactly(std::move(y_), result_, what_, source_);
    y_ = bind_reshape(std::move(y_), without_new_, source_);
    if (y_.size() == 0 || type_.size() == 0) return x_;
    return terms_.has_arrays() || strided_ ? scatter() : update_box();
  }

 private:
  DimUpdate& part(const IndexTerm& t) { return parts_[static_cast<std::size_t>(t.dim)]; }

  // What each dim is, and the shape of x[...], with and without its new dims. The dims of index
  // arrays stand where the first of them stood, or in front where others come in between (NumPy).
  void measure() {
    parts_.resize(type_.dims().size());
    const bool arrays = terms_.has_arrays();
    std::vector<Shape> shapes;
    bool ended = false, apart = false;
    int before = 0;
    for (std::size_t k = 0; k < terms_.terms().size(); ++k) {
      const IndexTerm& t = terms_.terms()[k];
      const bool indexes =
          t.kind == Index::Kind::array || (arrays && t.kind == Index::Kind::integer);
      if (indexes) {
        apart = apart || ended;
        shapes.push_back(t.kind == Index::Kind::array ? t.array.shape() : Shape());
      } else if (t.kind != Index::Kind::integer) {
        if (shapes.empty()) ++before;
        ended = !shapes.empty();
      }
      if (t.kind != Index::Kind::new_dim) measure(t, k);
    }
    if (apart) before = 0;
    if (!shapes.empty()) array_shape_ = broadcast_shapes(shapes, "index arrays", source_);
    int free = 0;
    const auto put_arrays = [&] {
      if (free != before || shapes.empty()) return;
      arrays_at_ = without_new_.rank();
      for (std::int64_t e : array_shape_) {
        result_.push_back(e);
        without_new_.push_back(e);
      }
    };
    for (const IndexTerm& t : terms_) {
      if (t.kind == Index::Kind::array || t.kind == Index::Kind::integer) continue;
      put_arrays();
      ++free;
      if (t.kind == Index::Kind::new_dim) {
        result_.push_back(1);
        continue;
      }
      part(t).term = static_cast<std::size_t>(without_new_.rank());
      result_.push_back(part(t).count);
      without_new_.push_back(part(t).count);
    }
    put_arrays();
  }

  void measure(const IndexTerm& t, std::size_t) {
    DimUpdate& p = part(t);
    const std::int64_t n = type_.dims()[static_cast<std::size_t>(t.dim)];
    if (t.kind == Index::Kind::array) {
      if (n == 0 && t.array.size() > 0) {
        throw ValueError("an index of dim " + std::to_string(t.dim) + " of an array of type " +
                         to_string(type_) + ", which has no elements" + at_line(source_));
      }
      p = {DimUpdate::array, 0, 1, 1, 0};
    } else if (t.kind == Index::Kind::integer) {
      p = {DimUpdate::integer, terms_.checked_integer(t), 1, 1, 0};
    } else {
      std::int64_t end = 0;
      p.step = terms_.clip_range(t.range, n, p.first, end);
      const std::int64_t by = p.step < 0 ? -p.step : p.step;
      p.count = (end - p.first + by - 1) / by;
      if (p.count <= 1 && p.step > 0) p.step = 1;
      p.kind = p.step != 1                    ? DimUpdate::strided
               : p.first == 0 && p.count == n ? DimUpdate::whole
                                              : DimUpdate::range;
      strided_ = strided_ || p.kind == DimUpdate::strided;
    }
  }

  // A box: one slice, changed and put back.
  Array update_box() {
    Dims start, limit, strides;
    std::vector<Array> starts;
    Shape box;
    bool whole = true;
    for (const DimUpdate& p : parts_) {
      start.push_back(p.first);
      limit.push_back(p.first + p.count);
      strides.push_back(1);
      starts.emplace_back(p.first);
      box.push_back(p.count);
      whole = whole && p.kind == DimUpdate::whole;
    }
    Array y = bind_reshape(std::move(y_), box, source_);
    if (kind_ != ScatterKind::set) {
      const Primitive* const ops[] = {nullptr, &add_p, &mul_p, &min_p, &max_p};
      // Of all of x its memory can be taken, once nobody else holds it.
      Array old = whole ? std::move(x_) : bind_slice(x_, start, limit, strides, source_);
      const Primitive& op = *ops[static_cast<int>(kind_)];
      y = type_.dtype() == DType::bool_
              ? of_bools(old, y)
              : bind(op, std::move(old), std::move(y), no_params, source_);
    }
    if (whole) return y;
    return dynamic_update_slice(Operand(std::move(x_), source_.file, source_.line),
                                Operand(std::move(y), source_.file, source_.line), starts);
  }

  // Sums of bools are "or", products "and", as everywhere.
  Array of_bools(const Array& a, const Array& b) const {
    const bool joins = kind_ == ScatterKind::add || kind_ == ScatterKind::max;
    return joins ? logical_or(a, b) : logical_and(a, b);
  }

  // The places of everything else: windows of what is taken whole or in a range, one for each of
  // the other places, in the order of the dims of x[...].
  Array scatter() {
    if (type_.dtype() == DType::bool_ && kind_ != ScatterKind::set) {
      throw TypeError(std::string(what_) + ": of an array of type " + to_string(type_) +
                      " at index arrays or in steps: numbers are wanted; convert it with astype" +
                      at_line(source_));
    }
    ScatterAddParams params;
    Shape batch;  // dims of y that are no window's
    std::vector<int> batch_dim(static_cast<std::size_t>(without_new_.rank()), -1);
    std::vector<bool> window(static_cast<std::size_t>(without_new_.rank()), false);
    for (const DimUpdate& p : parts_)
      if (p.kind == DimUpdate::whole || p.kind == DimUpdate::range) window[p.term] = true;
    for (int d = 0; d < without_new_.rank(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      if (window[at]) {
        params.update_window_dims.push_back(d);
      } else {
        batch_dim[at] = batch.rank();
        batch.push_back(without_new_[at]);
      }
    }
    const DType dtype = index_dtype();
    Shape column = batch;
    column.push_back(1);
    std::vector<Array> columns;
    const auto add_column = [&](int dim, Array values) {
      params.scatter_dims_to_operand_dims.push_back(dim);
      columns.push_back(bind_reshape(std::move(values), column, source_));
    };
    for (const IndexTerm& t : terms_) {
      if (t.dim < 0) continue;
      const DimUpdate& p = part(t);
      if (p.kind != DimUpdate::whole && p.kind != DimUpdate::range)
        params.inserted_window_dims.push_back(t.dim);
      if (p.kind == DimUpdate::array) {
        const std::int64_t n = type_.dims()[static_cast<std::size_t>(t.dim)];
        Array at = convert(wrap_indices(t.array, n, "an index", source_), dtype, source_);
        at = broadcast_exactly(std::move(at), array_shape_, "an index", source_);
        Dims dims;
        for (int d = 0; d < array_shape_.rank(); ++d)
          dims.push_back(batch_dim[static_cast<std::size_t>(arrays_at_ + d)]);
        add_column(t.dim, bind_broadcast(std::move(at), batch, dims, source_));
      } else if (p.kind == DimUpdate::strided) {
        add_column(t.dim, steps(p, dtype, batch, batch_dim[p.term]));
      } else if (p.kind != DimUpdate::whole) {
        add_column(t.dim, broadcast_exactly(scalar_of(dtype, static_cast<double>(p.first), source_),
                                            batch, "an index", source_));
      }
    }
    Array in[] = {std::move(x_), bind_concatenate(columns, batch.rank(), source_), std::move(y_)};
    return bind(scatter_primitive(kind_), in, params, source_);
  }

  // The items of a range with a step, along that dim.
  Array steps(const DimUpdate& p, DType dtype, const Shape& shape, int dim) const {
    const std::int64_t last = p.first + (p.count - 1) * (p.step < 0 ? -p.step : p.step);
    const auto number = [&](std::int64_t n) { return convert(Array(n), dtype, source_); };
    Array at =
        bind(mul_p, bind_iota(dtype, shape, dim, source_), number(p.step), no_params, source_);
    return bind(add_p, at, number(p.step < 0 ? last : p.first), no_params, source_);
  }

  // One that holds every place, and what the index arrays hold.
  DType index_dtype() const {
    bool wide = false;
    for (std::int64_t e : type_.dims()) wide = wide || e > INT32_MAX;
    for (const IndexTerm& t : terms_) {
      if (t.kind != Index::Kind::array) continue;
      const DType dtype = t.array.dtype();
      wide = wide || (dtype != DType::i32 && itemsize(dtype) >= 4);
    }
    return wide ? DType::i64 : DType::i32;
  }

  Array x_, y_;
  SourceLine source_;
  ScatterKind kind_;
  const char* what_;
  ShapedArray type_;
  IndexTerms terms_;
  std::vector<DimUpdate> parts_;
  bool strided_ = false;
  Shape array_shape_;           // of the index arrays, broadcast
  int arrays_at_ = 0;           // their first dim in without_new_
  Shape result_, without_new_;  // of x[...], and without its new dims
};

}  // namespace

IndexedArray Array::at(const Index& index) const& { return {*this, {index}}; }
IndexedArray Array::at(const Index& index) && { return {std::move(*this), {index}}; }
IndexedArray Array::at(std::initializer_list<Index> indices) const& { return {*this, indices}; }
IndexedArray Array::at(std::initializer_list<Index> indices) && {
  return {std::move(*this), indices};
}

Array IndexedArray::set(Operand y) const& {
  return Updater(x_, indices_, ScatterKind::set, std::move(y)).run();
}
Array IndexedArray::add(Operand y) const& {
  return Updater(x_, indices_, ScatterKind::add, std::move(y)).run();
}
Array IndexedArray::mul(Operand y) const& {
  return Updater(x_, indices_, ScatterKind::mul, std::move(y)).run();
}
Array IndexedArray::min(Operand y) const& {
  return Updater(x_, indices_, ScatterKind::min, std::move(y)).run();
}
Array IndexedArray::max(Operand y) const& {
  return Updater(x_, indices_, ScatterKind::max, std::move(y)).run();
}
Array IndexedArray::set(Operand y) && {
  return Updater(std::move(x_), indices_, ScatterKind::set, std::move(y)).run();
}
Array IndexedArray::add(Operand y) && {
  return Updater(std::move(x_), indices_, ScatterKind::add, std::move(y)).run();
}
Array IndexedArray::mul(Operand y) && {
  return Updater(std::move(x_), indices_, ScatterKind::mul, std::move(y)).run();
}
Array IndexedArray::min(Operand y) && {
  return Updater(std::move(x_), indices_, ScatterKind::min, std::move(y)).run();
}
Array IndexedArray::max(Operand y) && {
  return Updater(std::move(x_), indices_, ScatterKind::max, std::move(y)).run();
}

}  // namespace shmap
