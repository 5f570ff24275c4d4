// Finding attention before it is differentiated: in a program that is being traced while a
// derivative of the same code is taken, so that the derivative is attention's own, which keeps no
// array of the scores (core/ops/attention_grad.h).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/ops/attention.h"
#include "core/transforms/tracing/make_jaxpr.h"

namespace shmap {

// What a JvpTrace remembers of the operations that it interprets. The primals of its values are
// variables of the program that its parent traces, so that the equations that made a primal can be
// looked up there; what each of these operations was differentiated with respect to stands here.
//
// Nothing is remembered or found where the parent traces no program (an eager derivative), and
// where the program's devices have no kernel for attention (SHMAP_ATTENTION=0 among others).
class TracedAttention {
 public:
  explicit TracedAttention(Trace& parent);
  bool is_on() const { return program_ != nullptr; }

  // `dual`: the value whose primal is that one.
  void remember_value(const Array& primal, const Array& dual);
  // An operation that made `primal`; has_tangent(i): whether it is differentiated with respect to
  // its operand i.
  template <class HasTangent>
  void remember_operation(const Primitive& primitive, std::size_t operands, const Array& primal,
                          const HasTangent& has_tangent) {
    std::uint64_t active = 0;
    for (std::size_t i = 0; i < operands && i < 64; ++i)
      if (has_tangent(i)) active |= std::uint64_t{1} << i;
    remember_operation(primitive, operands, primal, active);
  }

  struct Call {
    std::vector<Array> in;  // values of the JvpTrace, or of the program
    std::shared_ptr<const Params> params;
  };
  // The call of attention_p that gives what a dot_general of these primals gives, where it is the
  // last operation of attention as find_attention.h has it; active: a bit for each of its operands.
  // Not where a tangent was dropped on the way (stop_gradient of the scores), nor where the bias
  // has one. The scores and weights may be used elsewhere too: then both are computed.
  std::optional<Call> find(std::span<const Array> primals, const Params& dot, std::uint64_t active,
                           SourceLine source);

 private:
  struct Operation {
    const Primitive* primitive = nullptr;
    std::size_t operands = 0;
    std::uint64_t active = 0;
  };
  void remember_operation(const Primitive& primitive, std::size_t operands, const Array& primal,
                          std::uint64_t active);
  const Var* var_of(const Array& x) const;  // null where it is no variable of the program
  bool may_be_weights(const Array& x) const;
  void index_makers();
  bool differentiates(const Eqn& eqn, const Operation* operation) const;
  bool keeps_tangents(const std::vector<int>& places, const Eqn& product) const;
  std::vector<int> makers_of(std::span<const Atom> operands, std::span<const Array> primals) const;

  JaxprTrace* program_ = nullptr;
  AttentionCheck takes_ = nullptr;
  PointerMap<Array> duals_;           // by the variable of the primal
  PointerMap<Operation> operations_;  // by the variable that it made
  PointerMap<int> makers_;            // the place of the equation that made it, and 1
  std::size_t indexed_ = 0;           // so many equations are in makers_
};

}  // namespace shmap
