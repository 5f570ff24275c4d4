// Finds attention before it is differentiated, in a program that is traced while a derivative of
// the same code is taken. The derivative is then that of attention, which stores no array of the
// scores (core/ops/attention_grad.h).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/ops/attention.h"
#include "core/tracing/make_jaxpr.h"

namespace shmap {

// Records the operations that a JvpTrace interprets. The primals of its values are variables of the
// program that its parent traces, in which the equations behind a primal are found; this class
// records with respect to which operands each operation was differentiated.
//
// Nothing is recorded or found where the parent traces no program (an eager derivative), and where
// the program's devices have no kernel for attention (SHMAP_ATTENTION=0 among others).
class TracedAttention {
 public:
  explicit TracedAttention(Trace& parent);
  bool is_on() const { return program_ != nullptr; }

  // `dual`: the value of the JvpTrace with that primal.
  void remember_value(const Array& primal, const Array& dual);
  // Records the operation that computed `primal`; has_tangent(i): whether it was differentiated
  // with respect to operand i.
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
  // The call of attention_p that replaces a dot_general of these primals, if it is the last
  // operation of attention (find_attention.h). active: a bit for each operand of the dot_general
  // that has a tangent. Nothing where a tangent was dropped inside the attention (stop_gradient of
  // the scores), or where the bias has a tangent. Scores and weights may have other readers: then
  // both forms are computed.
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
  const Var* var_of(const Array& x) const;  // null where x is not a variable of the program
  bool may_be_weights(const Array& x) const;
  void index_makers();
  bool differentiates(const Eqn& eqn, const Operation* operation) const;
  bool keeps_tangents(const std::vector<int>& places, const Eqn& product) const;
  std::vector<int> makers_of(std::span<const Atom> operands, std::span<const Array> primals) const;

  JaxprTrace* program_ = nullptr;
  AttentionCheck takes_ = nullptr;
  PointerMap<Array> duals_;           // by the variable of the primal
  PointerMap<Operation> operations_;  // by the variable of the result
  PointerMap<int> makers_;            // the number of the equation that defines a variable, plus 1
  std::size_t indexed_ = 0;           // the number of equations in makers_
};

}  // namespace shmap
