// x.at(...).apply(f): a while_loop where an index array may name an element several times.
#include <algorithm>
#include <utility>

#include "core/ir/trace.h"
#include "shmap/control_flow.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

using Mode = GatherScatterMode;

class Applier {
 public:
  Applier(const Array& x, const std::vector<Index>& indices, const std::function<Array(Array)>& f,
          Mode mode, SourceLine source)
      : at_(x, indices), x_(x), indices_(indices), f_(f), mode_(mode), source_(source) {
    if (!f) throw ValueError("x.at(...).apply: an empty function" + at_line(source));
  }

  // The new values of the elements. Where an index occurs several times its values are equal, so
  // that the order of set does not matter.
  Array run() const {
    const Array once = applied(at_.get());
    const bool repeats = std::any_of(indices_.begin(), indices_.end(), [](const Index& i) {
      return i.kind == Index::Kind::array && i.array.size() > 1;
    });
    if (!repeats) return once;
    const Array times = occurrences();
    const Array most = max(times);
    const auto [trips, values] = while_loop(
        [&](const std::pair<Array, Array>& carry) { return carry.first < most; },
        [&](const std::pair<Array, Array>& carry) {
          return std::pair(carry.first + 1,
                           where(times > carry.first, applied(carry.second), carry.second));
        },
        std::pair(Array(1), once));
    return values;
  }

 private:
  Array applied(Array values) const {
    const ShapedArray type = values.type(source_);
    Array result = f_(std::move(values));
    const ShapedArray got = result.type(source_);
    // A host scalar stands for an array, as in other operations.
    const bool literal =
        got.rank() == 0 && got.weak() && (is_integer(got.dtype()) || is_floating(type.dtype()));
    if (literal) return broadcast_to(astype(result, type.dtype()), type.dims());
    if (got.dims() == type.dims() && got.dtype() == type.dtype()) return result;
    const std::string text = "x.at(...).apply: its function returns " + to_string(got) + " for " +
                             to_string(type) + ": wanted an elementwise function, whose result " +
                             "has the shape and dtype of its argument" + at_line(source_);
    if (got.dtype() != type.dtype()) throw TypeError(text);
    throw ValueError(text);
  }

  // For each element of x[...], how often the index array names it.
  Array occurrences() const {
    std::vector<const Array*> operands{&x_};
    for (const Index& i : indices_)
      if (i.kind == Index::Kind::array) operands.push_back(&i.array);
    const FunctionScope scope("x.at(...).apply", operands, source_);
    const Array none = astype(zeros_like(x_), i32);
    return IndexedArray(IndexedArray(none, indices_).add(1, mode_), indices_).get();
  }

  IndexedArray at_;
  const Array& x_;
  const std::vector<Index>& indices_;
  const std::function<Array(Array)>& f_;
  Mode mode_;
  SourceLine source_;
};

}  // namespace

Array IndexedArray::apply(const std::function<Array(Array)>& f, Mode mode,
                          SourceLine source) const& {
  const Array y = Applier(x_, indices_, f, mode, source).run();
  return set(Operand(y, source.file, source.line), mode);
}
Array IndexedArray::apply(const std::function<Array(Array)>& f, Mode mode, SourceLine source) && {
  const Array y = Applier(x_, indices_, f, mode, source).run();
  return std::move(*this).set(Operand(y, source.file, source.line), mode);
}

}  // namespace shmap
