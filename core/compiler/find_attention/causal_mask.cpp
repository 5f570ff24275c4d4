#include "core/compiler/find_attention/causal_mask.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// Up to this number, every dtype here holds positions, constants and sums of two of these exactly.
constexpr double kMostExact = 1 << 22;
// A search for positions visits so many values at most. (Sums that share operands lead to a value
// in many ways.)
constexpr int kMostVisits = 64;

bool counts_exactly(DType dtype) {
  return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::f32 || dtype == DType::f64;
}

// rows * row + columns * column + constant.
struct Affine {
  double rows = 0, columns = 0, constant = 0;
};

class Positions {
 public:
  Positions(const ProgramIndex& program, int row, int column)
      : program_(program), row_(row), column_(column) {}

  std::optional<Affine> of(const Atom& a, const IntList& places) {
    if (++visits_ > kMostVisits || !counts_exactly(a.type().dtype())) return std::nullopt;
    if (a.is_literal()) return literal(a);
    const int i = program_.maker(a);
    if (i < 0) return std::nullopt;
    const Eqn& e = program_.eqn(i);
    if (e.primitive == &iota_p) return iota(params_as<IotaParams>(*e.params), places);
    if (e.primitive == &convert_element_type_p) return of(e.in[0], places);
    if (e.primitive == &broadcast_in_dim_p && e.in[0].is_literal()) return literal(e.in[0]);
    if (e.primitive == &add_p || e.primitive == &sub_p) {
      return joined(e.in[0], e.in[1], e.primitive == &add_p ? 1 : -1, places);
    }
    IntList inside = places;
    if (!go_through_repetition(e, &inside)) return std::nullopt;
    return of(e.in[0], inside);
  }

  // a - b.
  std::optional<Affine> difference(const Atom& a, const Atom& b, const IntList& places) {
    return joined(a, b, -1, places);
  }

 private:
  // a + sign * b.
  std::optional<Affine> joined(const Atom& a, const Atom& b, double sign, const IntList& places) {
    const auto x = of(a, places_of(a, places));
    if (!x) return std::nullopt;
    const auto y = of(b, places_of(b, places));
    if (!y) return std::nullopt;
    return combined(*x, *y, sign);
  }

  // A scalar has no dims: it is broadcast to the result's shape.
  static IntList places_of(const Atom& a, const IntList& places) {
    return a.type().rank() == 0 ? IntList() : places;
  }

  static std::optional<Affine> literal(const Atom& a) {
    double value = 0;
    if (!literal_number(a, &value) || std::floor(value) != value || std::abs(value) > kMostExact)
      return std::nullopt;
    return Affine{0, 0, value};
  }

  std::optional<Affine> iota(const IotaParams& p, const IntList& places) const {
    const auto d = static_cast<std::size_t>(p.dimension);
    if (static_cast<double>(p.shape[d]) > kMostExact) return std::nullopt;
    if (p.shape[d] == 1) return Affine{};
    if (places[d] == row_) return Affine{1, 0, 0};
    if (places[d] == column_) return Affine{0, 1, 0};
    return std::nullopt;
  }

  static std::optional<Affine> combined(const Affine& x, const Affine& y, double sign) {
    const Affine z{x.rows + sign * y.rows, x.columns + sign * y.columns,
                   x.constant + sign * y.constant};
    if (std::abs(z.rows) > 1 || std::abs(z.columns) > 1 || std::abs(z.constant) > kMostExact)
      return std::nullopt;
    return z;
  }

  const ProgramIndex& program_;
  int row_, column_;
  int visits_ = 0;
};

// What a comparison says where it is true.
struct Order {
  bool left_is_greater, strict;
};
std::optional<Order> order_of(const Primitive& p) {
  const ElementwiseRow* const row = p.elementwise_row;
  if (row == nullptr || row->form != ElementwiseRow::Form::compare) return std::nullopt;
  switch (row->compare()) {
    case CompareOp::gt:
      return Order{true, true};
    case CompareOp::ge:
      return Order{true, false};
    case CompareOp::lt:
      return Order{false, true};
    case CompareOp::le:
      return Order{false, false};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::int64_t> causal_offset(const ProgramIndex& program, const Atom& mask,
                                          const IntList& places, int row, int column,
                                          bool inverted) {
  const int i = program.maker(mask);
  if (i < 0) return std::nullopt;
  const Eqn& e = program.eqn(i);
  if (e.primitive == &not__p) {
    return causal_offset(program, e.in[0], places, row, column, !inverted);
  }
  const std::optional<Order> order = order_of(*e.primitive);
  if (!order) {
    IntList inside = places;
    if (!go_through_repetition(e, &inside)) return std::nullopt;
    return causal_offset(program, e.in[0], inside, row, column, inverted);
  }
  // The comparison as greater - less >= 0, or > 0 if it is strict.
  bool left_is_greater = order->left_is_greater, strict = order->strict;
  if (inverted) {
    left_is_greater = !left_is_greater;
    strict = !strict;
  }
  const Atom &greater = e.in[left_is_greater ? 0 : 1], &less = e.in[left_is_greater ? 1 : 0];
  const auto d = Positions(program, row, column).difference(greater, less, places);
  if (!d || d->rows != 1 || d->columns != -1) return std::nullopt;
  return static_cast<std::int64_t>(d->constant) - (strict ? 1 : 0);
}

}  // namespace shmap
