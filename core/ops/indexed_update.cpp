// x.at(...).set(y) and the other updates: NumPy's indexed assignment, returning new arrays.
#include <algorithm>
#include <iterator>

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

using Mode = GatherScatterMode;

enum class Update : std::uint8_t { set, add, mul, min, max, subtract, divide, power };
// By Update: the name in errors, how the new values are combined with the elements, and the
// operation of an old and a new value that does it (null: the new value).
constexpr struct {
  const char* name;
  ScatterKind kind;
  const Primitive* op;
} kUpdates[] = {{"x.at(...).set", ScatterKind::set, nullptr},
                {"x.at(...).add", ScatterKind::add, &add_p},
                {"x.at(...).mul", ScatterKind::mul, &mul_p},
                {"x.at(...).min", ScatterKind::min, &min_p},
                {"x.at(...).max", ScatterKind::max, &max_p},
                {"x.at(...).subtract", ScatterKind::add, &add_p},
                {"x.at(...).divide", ScatterKind::mul, &div_p},
                {"x.at(...).power", ScatterKind::mul, &pow_p}};
static_assert(std::size(kUpdates) == static_cast<std::size_t>(Update::power) + 1);

ScatterKind scatter_kind(Update update) { return kUpdates[static_cast<int>(update)].kind; }

// The way in which an update selects from a dim of x.
struct DimUpdate {
  enum Kind { whole, range, strided, integer, array } kind = whole;
  std::int64_t first = 0, count = 0, step = 1;  // step < 0: from first + (count - 1) * |step| down
  std::size_t term = 0;
};

class Updater {
 public:
  Updater(Array x, std::span<const Index> indices, Update update, Operand y, Mode mode)
      : x_(std::move(x)),
        y_(std::move(y.value)),
        source_(y.source),
        update_(update),
        mode_(mode),
        what_(kUpdates[static_cast<int>(update)].name),
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
    if (update_ > Update::max && type_.dtype() == DType::bool_) throw_bools("");
    if (update_ == Update::subtract) y_ = bind(neg_p, std::move(y_), no_params, source_);
    const bool box = !terms_.has_arrays() && !strided_;
    if (scatter_kind(update_) == ScatterKind::mul && update_ != Update::mul &&
        !(box && is_floating(type_.dtype())))
      return by_factors(box);
    return updated(box);
  }

 private:
  Array updated(bool box) {
    if (y_.size() == 0 || type_.size() == 0) return x_;
    return box ? update_box() : scatter();
  }

  // divide and power: x / f or x ** f, where f holds the product of the values for each element.
  // Applied one after the other, one of several values for an element would be lost (JAX does the
  // same).
  Array by_factors(bool box) {
    const Update update = std::exchange(update_, Update::mul);
    const auto operand = [&](Array a) { return Operand(std::move(a), source_.file, source_.line); };
    Operand x = operand(x_);
    x_ = ones_like(operand(std::move(x_)));
    Operand factors = operand(updated(box));
    if (update == Update::power) return pow(std::move(x), std::move(factors));
    promote_inexact(x, factors, what_);
    return bind(div_p, std::move(x.value), std::move(factors.value), no_params, source_);
  }

  [[noreturn]] void throw_bools(const char* where) const {
    throw TypeError(std::string(what_) + ": of an array of type " + to_string(type_) + where +
                    ": numbers are wanted; convert it with astype" + at_line(source_));
  }

  DimUpdate& part(const IndexTerm& t) { return parts_[static_cast<std::size_t>(t.dim)]; }

  // Sets parts_, and the shape of x[...] with and without new dims. The dims of index arrays are at
  // the position of the first index array, or in front if other entries separate the arrays
  // (NumPy).
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
      p.count = items_in_steps(p.first, end, p.step < 0 ? -p.step : p.step);
      if (p.count <= 1 && p.step > 0) p.step = 1;
      p.kind = p.step != 1                    ? DimUpdate::strided
               : p.first == 0 && p.count == n ? DimUpdate::whole
                                              : DimUpdate::range;
      strided_ = strided_ || p.kind == DimUpdate::strided;
    }
  }

  // An update of one contiguous box: slice, change, and put back.
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
    if (update_ != Update::set) {
      // Where the box is all of x, x itself is used, so that its memory can be reused.
      Array old = whole ? std::move(x_) : bind_slice(x_, start, limit, strides, source_);
      const Primitive& op = *kUpdates[static_cast<int>(update_)].op;
      y = type_.dtype() == DType::bool_
              ? of_bools(old, y)
              : bind(op, std::move(old), std::move(y), no_params, source_);
    }
    if (whole) return y;
    return dynamic_update_slice(Operand(std::move(x_), source_.file, source_.line),
                                Operand(std::move(y), source_.file, source_.line), starts);
  }

  // For bools, add and max are "or", the others "and".
  Array of_bools(const Array& a, const Array& b) const {
    const bool joins = update_ == Update::add || update_ == Update::max;
    return joins ? logical_or(a, b) : logical_and(a, b);
  }

  // All other updates, as a scatter. Dims that are whole or a range are window dims; the others are
  // batch dims, in the order of the dims of x[...].
  Array scatter() {
    if (type_.dtype() == DType::bool_ && update_ != Update::set)
      throw_bools(" at index arrays or in steps");
    ScatterAddParams params;
    Shape batch;  // the dims of y that are not window dims
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
        Array at = wrap_indices(t.array, n, "an index", source_);
        if (mode_ == Mode::clip) at = clip_indices(std::move(at), n);
        at = convert(std::move(at), dtype, source_);
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
    return bind(scatter_primitive(scatter_kind(update_)), in, params, source_);
  }

  Array clip_indices(Array at, std::int64_t extent) const {
    const DType dtype = at.dtype();
    const auto number = [&](std::int64_t n) { return convert(Array(n), dtype, source_); };
    // A narrow unsigned dtype whose values are all in range needs no upper bound.
    if (is_signed_int(dtype) || itemsize(dtype) == 8 ||
        extent - 1 < INT64_C(1) << 8 * itemsize(dtype))
      at = bind(min_p, std::move(at), number(extent - 1), no_params, source_);
    return is_signed_int(dtype) ? bind(max_p, std::move(at), number(0), no_params, source_) : at;
  }

  // The indices of a range with a step, along dim `dim` of the batch.
  Array steps(const DimUpdate& p, DType dtype, const Shape& shape, int dim) const {
    const std::int64_t last = p.first + (p.count - 1) * (p.step < 0 ? -p.step : p.step);
    const auto number = [&](std::int64_t n) { return convert(Array(n), dtype, source_); };
    Array at =
        bind(mul_p, bind_iota(dtype, shape, dim, source_), number(p.step), no_params, source_);
    return bind(add_p, at, number(p.step < 0 ? last : p.first), no_params, source_);
  }

  // A dtype that holds every index of x and every value of the index arrays.
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
  Update update_;
  Mode mode_;
  const char* what_;
  ShapedArray type_;
  IndexTerms terms_;
  std::vector<DimUpdate> parts_;
  bool strided_ = false;
  Shape array_shape_;           // of the index arrays, broadcast
  int arrays_at_ = 0;           // the position of their first dim in without_new_
  Shape result_, without_new_;  // the shape of x[...], and that shape without new dims
};

}  // namespace

IndexedArray Array::at(const Index& index) const& { return {*this, {index}}; }
IndexedArray Array::at(const Index& index) && { return {std::move(*this), {index}}; }
IndexedArray Array::at(std::initializer_list<Index> indices) const& { return {*this, indices}; }
IndexedArray Array::at(std::initializer_list<Index> indices) && {
  return {std::move(*this), indices};
}

#define SHMAP_UPDATE(name, update)                                                     \
  Array IndexedArray::name(Operand y, Mode mode) const& {                              \
    return Updater(x_, indices_, Update::update, std::move(y), mode).run();            \
  }                                                                                    \
  Array IndexedArray::name(Operand y, Mode mode)&& {                                   \
    return Updater(std::move(x_), indices_, Update::update, std::move(y), mode).run(); \
  }
SHMAP_UPDATE(set, set)
SHMAP_UPDATE(add, add)
SHMAP_UPDATE(subtract, subtract)
SHMAP_UPDATE(multiply, mul)
SHMAP_UPDATE(mul, mul)
SHMAP_UPDATE(divide, divide)
SHMAP_UPDATE(power, power)
SHMAP_UPDATE(min, min)
SHMAP_UPDATE(max, max)
#undef SHMAP_UPDATE

}  // namespace shmap
