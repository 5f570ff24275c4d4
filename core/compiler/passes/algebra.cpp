#include "core/compiler/passes/algebra.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "core/base/element_type.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/optimization_barrier.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// Compares weakness too, because results of programs promote by it.
bool same_type(const ShapedArray& a, const ShapedArray& b) {
  return a == b && a.weak() == b.weak();
}

// Whether `a` is the literal `number`, 0 (+0.0) or 1, of any numeric dtype.
bool is_literal_number(const Atom& a, int number) {
  if (!a.is_literal()) return false;
  const auto& node = static_cast<const LiteralNode&>(*node_of(a.literal()));
  std::uint64_t bits = 0;
  const auto size = static_cast<std::size_t>(itemsize(node.type.dtype()));
  std::memcpy(&bits, node.value, size);
  if (number == 0) return bits == 0;
  return with_plain(node.type.dtype(), [bits]<class T>() {
    const T one = static_cast<T>(1);
    return std::memcmp(&bits, &one, sizeof one) == 0;
  });
}

// An operation of two operands that gives the first where the second is `number`.
struct Neutral {
  const Primitive* primitive;
  int number;
  bool on_both_sides;  // and the second where the first is `number`
  bool of_floats;      // of floats too: x + 0 turns -0.0 to 0.0
};
constexpr Neutral kNeutrals[] = {{&mul_p, 1, true, true},
                                 {&div_p, 1, false, true},
                                 {&sub_p, 0, false, true},
                                 {&add_p, 0, true, false}};

const Atom* without_neutral(const Eqn& e, const Neutral& neutral) {
  if (!neutral.of_floats && is_floating(e.out[0]->type.dtype())) return nullptr;
  if (is_literal_number(e.in[1], neutral.number)) return &e.in[0];
  if (neutral.on_both_sides && is_literal_number(e.in[0], neutral.number)) return &e.in[1];
  return nullptr;
}

}  // namespace

const Atom* identity_of(const Eqn& e) {
  const Primitive* p = e.primitive;
  const Atom* same = nullptr;
  const auto* const neutral = std::find_if(std::begin(kNeutrals), std::end(kNeutrals),
                                           [p](const Neutral& n) { return n.primitive == p; });
  if (neutral != std::end(kNeutrals)) {
    same = without_neutral(e, *neutral);
  } else if (p == &convert_element_type_p || p == &reshape_p || p == &stop_gradient_p) {
    same = &e.in[0];
  } else if (p == &transpose_p) {
    if (is_identity(params_as<TransposeParams>(*e.params).permutation)) same = &e.in[0];
  } else if (p == &broadcast_in_dim_p) {
    if (is_identity(params_as<BroadcastParams>(*e.params).dims)) same = &e.in[0];
  } else if (p == &optimization_barrier_p) {
    // An operation on a literal alone. Unrolling of loops makes such operations.
    if (e.in[0].is_literal()) same = &e.in[0];
  }
  return same && same_type(same->type(), e.out[0]->type) ? same : nullptr;
}

bool composes(const Primitive& p) {
  return &p == &transpose_p || &p == &reshape_p || &p == &broadcast_in_dim_p;
}

void compose(Eqn& e, const Eqn& first) {
  if (e.primitive == &transpose_p) {
    auto params = std::make_shared<TransposeParams>(params_as<TransposeParams>(*e.params));
    const Dims& inner = params_as<TransposeParams>(*first.params).permutation;
    for (std::size_t d = 0; d < inner.size(); ++d)
      params->permutation[d] = inner[static_cast<std::size_t>(params->permutation[d])];
    e.params = std::move(params);
  } else if (e.primitive == &broadcast_in_dim_p) {
    auto params = std::make_shared<BroadcastParams>(params_as<BroadcastParams>(*first.params));
    const auto& outer = params_as<BroadcastParams>(*e.params);
    params->shape = outer.shape;
    for (std::size_t d = 0; d < params->dims.size(); ++d)
      params->dims[d] = outer.dims[static_cast<std::size_t>(params->dims[d])];
    e.params = std::move(params);
  }  // a reshape's only parameter is its result's shape
  e.in = first.in;
}

}  // namespace shmap
