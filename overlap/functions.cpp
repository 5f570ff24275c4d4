// The public functions of overlapped products: they check subscripts and dims, and reduce an einsum
// of any form to one with a single letter per dim.
#include <algorithm>
#include <map>
#include <optional>

#include "collectives/pieces.h"
#include "collectives/scope.h"
#include "core/ops/einsum_spec.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "overlap/model.h"
#include "overlap/overlap.h"
#include "shmap/collectives.h"

namespace shmap {

namespace {

// The checked arguments of a call.
struct Request {
  OverlapKind kind;
  const char* what;
  Subscripts spec;
  int operand = 0;
  int part = 0, joined = 0;  // dims of the operand, or of the result
  Axes axes;
  int ranks = 1;
  Overlap form;
};

class Call {
 public:
  Call(const Request& request, const Array& a, const Array& b)
      : r_(request),
        source_(request.spec.source),
        given_{a, b},
        spec_(request.what, request.spec, given_) {
    for (std::size_t i = 0; i < 2; ++i) {
      const Shape shape = node_of(given_[i])->type.dims();
      blocks_.push_back(shape);
      wholes_.push_back(shape);
    }
    if (moves_operand()) check_operand();
    find_sizes();
    if (!moves_operand()) check_result();
    reduce();
  }

  OverlapChoice choice() const {
    if (!reduced_) return plain_choice();
    return choose_overlap(*reduced_, type_of_operand(0), type_of_operand(1));
  }

  Array run() {
    Array a = given_[0], b = given_[1];
    cast(a, b);
    const std::vector<Array> operands{a, b};
    const FunctionScope scope(r_.what, operands, source_);
    if (choice().form == Overlap::none) return plain(a, b);
    Operand x(simple(0, std::move(a)), source_.file, source_.line),
        y(simple(1, std::move(b)), source_.file, source_.line);
    promote(x, y, r_.what);
    return run_overlapped(*reduced_, std::move(x.value), std::move(y.value), source_);
  }

 private:
  bool moves_operand() const {
    return r_.kind == OverlapKind::gather || r_.kind == OverlapKind::exchange;
  }
  bool is_exchange() const { return r_.kind == OverlapKind::exchange; }
  std::size_t moved() const { return static_cast<std::size_t>(r_.operand); }
  const EinsumLabels& labels(std::size_t i) const { return spec_.inputs[i]; }

  void check_operand() {
    const ShapedArray& type = node_of(given_[moved()])->type;
    const auto part = static_cast<std::size_t>(r_.part);
    Shape& whole = wholes_[moved()];
    if (is_exchange()) {
      const std::int64_t extent = type.dims()[part];
      if (extent % r_.ranks != 0) {
        not_cut("split_axis " + std::to_string(r_.part) + " of operand " +
                    std::to_string(r_.operand) + ", which",
                type, extent);
      }
      whole[part] /= r_.ranks;
      whole[static_cast<std::size_t>(r_.joined)] =
          checked_product(whole[static_cast<std::size_t>(r_.joined)], r_.ranks, r_.what);
    } else {
      whole[part] = checked_product(whole[part], r_.ranks, r_.what);
    }
  }

  void check_result() {
    const auto part = static_cast<std::size_t>(r_.part);
    Shape shape;
    for (EinsumLabel l : spec_.output) shape.push_back(sizes_.at(l));
    const ShapedArray type(shape, node_of(given_[0])->type.dtype());
    if (shape[part] % r_.ranks != 0)
      not_cut("scatter_dimension " + std::to_string(r_.part), type, shape[part]);
  }

  [[noreturn]] void not_cut(const std::string& dim, const ShapedArray& type, std::int64_t extent) {
    try {
      throw_not_cut(r_.what, dim, type, extent, true, r_.axes, r_.ranks, {});
    } catch (const ValueError& e) {
      throw ValueError(e.what() + at_line(source_));
    }
  }

  // Finds the extent of each label of the einsum in the operands that are multiplied, which are
  // those after the gather or the exchange.
  void find_sizes() {
    std::map<EinsumLabel, std::size_t> named_by;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t d = 0; d < wholes_[i].size(); ++d) {
        const EinsumLabel l = labels(i)[d];
        const std::int64_t size = wholes_[i][d];
        auto [it, fresh] = sizes_.emplace(l, size);
        if (fresh) named_by[l] = i;
        if (fresh || it->second == size || size == 1) continue;
        if (it->second != 1) {
          std::string how;
          if (moves_operand()) {
            how = std::string("; operand ") + std::to_string(r_.operand) + " counts as it is " +
                  (is_exchange() ? "exchanged" : "gathered") + " over the " +
                  describe_ranks(r_.axes, r_.ranks);
          }
          spec_.fail(label_name(l) + " has size " + std::to_string(it->second) + " in operand " +
                     std::to_string(named_by[l]) + " and size " + std::to_string(size) +
                     " in operand " + std::to_string(i) + ", of types " +
                     to_string(node_of(given_[named_by[l]])->type) + " and " +
                     to_string(node_of(given_[i])->type) + how +
                     ": they must be equal, or one of them 1");
        }
        it->second = size;
        named_by[l] = i;
      }
    }
  }

  // True for a dim of size 1 that is broadcast to the other operand's dim.
  bool is_broadcast(std::size_t i, std::size_t d) const {
    return wholes_[i][d] == 1 && sizes_.at(labels(i)[d]) != 1;
  }
  bool is_summed_alone(std::size_t i, EinsumLabel l) const {
    if (has_label(spec_.output, l)) return false;
    for (std::size_t d = 0; d < labels(1 - i).size(); ++d)
      if (labels(1 - i)[d] == l && !is_broadcast(1 - i, d)) return false;
    return true;
  }
  static std::ptrdiff_t times(const EinsumLabels& labels, EinsumLabel l) {
    return std::count(labels.begin(), labels.end(), l);
  }

  // The labels of an operand without repetitions (diagonals), without dims that are summed in this
  // operand only, and without broadcast dims.
  EinsumLabels kept(std::size_t i) const {
    EinsumLabels out;
    for (std::size_t d = 0; d < labels(i).size(); ++d) {
      const EinsumLabel l = labels(i)[d];
      if (!has_label(out, l) && !is_broadcast(i, d) && !is_summed_alone(i, l)) out.push_back(l);
    }
    return out;
  }

  void reduce() {
    if (r_.ranks == 1) return;
    const EinsumLabels& of = moves_operand() ? labels(moved()) : spec_.output;
    for (int dim : {r_.part, is_exchange() ? r_.joined : r_.part}) {
      const EinsumLabel l = of[static_cast<std::size_t>(dim)];
      if (!moves_operand()) continue;
      if (times(of, l) > 1 || is_summed_alone(moved(), l) ||
          is_broadcast(moved(), static_cast<std::size_t>(dim)))
        return;
    }
    OverlapSpec spec;
    std::map<EinsumLabel, char> letters;
    const auto text = [&](const EinsumLabels& list) {
      std::string out;
      for (EinsumLabel l : list) out += letters.at(l);
      return out;
    };
    std::string used;
    for (const auto& [l, size] : sizes_)
      if (l > 0) used += letters[l] = static_cast<char>(l);
    for (const auto& [l, size] : sizes_) {
      if (l > 0) continue;
      char free = 'A';
      while (place_of(used, free) >= 0 && free != 'z') free = free == 'Z' ? 'a' : free + 1;
      if (place_of(used, free) >= 0) return;  // more dims than letters
      used += letters[l] = free;
    }
    spec.kind = r_.kind;
    spec.a = text(kept(0));
    spec.b = text(kept(1));
    spec.out = text(spec_.output);
    spec.part = letters.at(of[static_cast<std::size_t>(r_.part)]);
    if (is_exchange()) spec.joined = letters.at(of[static_cast<std::size_t>(r_.joined)]);
    spec.operand = r_.operand;
    spec.axes = r_.axes;
    spec.ranks = r_.ranks;
    spec.form = r_.form;
    reduced_ = std::move(spec);
  }

  // The operand's type with only the dims of kept().
  ShapedArray type_of_operand(std::size_t i) const {
    Shape shape;
    const EinsumLabels left = kept(i);
    for (EinsumLabel l : left) {
      const auto at = std::find(labels(i).begin(), labels(i).end(), l) - labels(i).begin();
      shape.push_back(blocks_[i][static_cast<std::size_t>(at)]);
    }
    const ShapedArray &x = node_of(given_[0])->type, &y = node_of(given_[1])->type;
    const DType dtype = promote_types(x.dtype(), x.weak(), y.dtype(), y.weak()).dtype;
    return ShapedArray(shape, dtype);
  }

  Array simple(std::size_t i, Array x) const {
    EinsumLabels left;
    Shape shape;
    for (std::size_t d = 0; d < labels(i).size(); ++d) {
      if (is_broadcast(i, d)) continue;
      left.push_back(labels(i)[d]);
      shape.push_back(blocks_[i][d]);
    }
    if (left.size() != labels(i).size()) x = bind_reshape(std::move(x), shape, source_);
    const EinsumLabels wanted = kept(i);
    if (wanted == left) return x;
    std::map<EinsumLabel, char> letters;
    std::string text;
    for (EinsumLabel l : left)
      text += letters.emplace(l, static_cast<char>('a' + letters.size())).first->second;
    text += "->";
    for (EinsumLabel l : wanted) text += letters.at(l);
    return detail::einsum(Subscripts(text, source_.file, source_.line), {std::move(x)});
  }

  // Casts the collective's operand to vary over its axes, as the plain form does.
  void cast(Array& a, Array& b) const {
    const AxesInScope scope(r_.axes, r_.what, source_);
    if (moves_operand()) {
      Array& x = r_.operand == 0 ? a : b;
      x = cast_to_varying(x, r_.axes, scope, r_.what, source_);
      require(node_of(x)->type, scope);
      return;
    }
    const AxisSet all = node_of(a)->type.axes() | node_of(b)->type.axes();
    if (!current_trace().casts()) require(node_of(a)->type.with_axes(all), scope);
  }
  void require(const ShapedArray& type, const AxesInScope& scope) const {
    try {
      require_varying(type, r_.axes, scope.mask, *scope.env, r_.what);
    } catch (const TypeError& e) {
      throw TypeError(e.what() + at_line(source_));
    }
  }

  Array plain(const Array& a, const Array& b) const {
    const auto product = [&](Array x, Array y) {
      return detail::einsum(r_.spec, {std::move(x), std::move(y)});
    };
    const Array& x = r_.operand == 0 ? a : b;
    switch (r_.kind) {
      case OverlapKind::gather: {
        Array whole =
            detail::all_gather_leaf(x, r_.axes, {.axis = r_.part, .tiled = true}, source_);
        return r_.operand == 0 ? product(std::move(whole), b) : product(a, std::move(whole));
      }
      case OverlapKind::exchange: {
        Array whole =
            detail::all_to_all_leaf(x, r_.axes, r_.part, r_.joined, {.tiled = true}, source_);
        return r_.operand == 0 ? product(std::move(whole), b) : product(a, std::move(whole));
      }
      default:
        return detail::psum_scatter_leaf(product(a, b), r_.axes,
                                         {.scatter_dimension = r_.part, .tiled = true}, source_);
    }
  }

  // The plain form, where nothing can overlap.
  OverlapChoice plain_choice() const { return {Overlap::none, 0, 0, 0}; }

  const Request& r_;
  const SourceLine source_;
  const std::vector<Array> given_;
  const EinsumSpec spec_;
  std::vector<Shape> blocks_, wholes_;  // the shapes on a device, and the shapes that are
                                        // multiplied
  std::map<EinsumLabel, std::int64_t> sizes_;
  std::optional<OverlapSpec> reduced_;  // none: only the plain form is possible
};

Request request_of(OverlapKind kind, const char* what, Subscripts spec, const Array& a,
                   const Array& b, const Axes& axes, int operand, Overlap form) {
  const SourceLine source = spec.source;
  Request r{kind, what, spec, operand, 0, 0, axes, 1, form};
  r.ranks = AxesInScope(axes, what, source).ranks;
  checked_node(a, what, source);
  checked_node(b, what, source);
  if (operand != 0 && operand != 1) {
    throw ValueError(std::string(what) + ": operand " + std::to_string(operand) +
                     " is out of range: there are two, 0 and 1" + at_line(source));
  }
  return r;
}

Request gather_request(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                       const AllGatherEinsumOptions& o) {
  Request r =
      request_of(OverlapKind::gather, "all_gather_einsum", spec, a, b, axes, o.operand, o.form);
  r.part =
      detail::dim_of(o.axis, node_of(o.operand == 0 ? a : b)->type.rank(), r.what, spec.source);
  return r;
}

Request scatter_request(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                        const EinsumPsumScatterOptions& o) {
  Request r = request_of(OverlapKind::scatter, "einsum_psum_scatter", spec, a, b, axes, 0, o.form);
  const EinsumSpec parsed(r.what, spec, {a, b});
  r.part = detail::dim_of(o.scatter_dimension, static_cast<int>(parsed.output.size()), r.what,
                          spec.source);
  return r;
}

Request exchange_request(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                         const AllToAllEinsumOptions& o) {
  Request r =
      request_of(OverlapKind::exchange, "all_to_all_einsum", spec, a, b, axes, o.operand, o.form);
  const int rank = node_of(o.operand == 0 ? a : b)->type.rank();
  r.part = detail::dim_of(o.split_axis, rank, r.what, spec.source);
  r.joined = detail::dim_of(o.concat_axis, rank, r.what, spec.source);
  return r;
}

}  // namespace

Array all_gather_einsum(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                        const AllGatherEinsumOptions& options) {
  return Call(gather_request(spec, a, b, axes, options), a, b).run();
}
Array einsum_psum_scatter(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                          const EinsumPsumScatterOptions& options) {
  return Call(scatter_request(spec, a, b, axes, options), a, b).run();
}
Array all_to_all_einsum(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                        const AllToAllEinsumOptions& options) {
  return Call(exchange_request(spec, a, b, axes, options), a, b).run();
}

OverlapChoice overlap_choice(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                             const AllGatherEinsumOptions& options) {
  return Call(gather_request(spec, a, b, axes, options), a, b).choice();
}
OverlapChoice overlap_choice(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                             const EinsumPsumScatterOptions& options) {
  return Call(scatter_request(spec, a, b, axes, options), a, b).choice();
}
OverlapChoice overlap_choice(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                             const AllToAllEinsumOptions& options) {
  return Call(exchange_request(spec, a, b, axes, options), a, b).choice();
}

}  // namespace shmap
