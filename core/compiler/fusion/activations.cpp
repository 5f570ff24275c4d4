#include "core/compiler/fusion/activations.h"

#include <cstdint>
#include <cstring>

#include "core/base/float_format.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"

namespace shmap {

namespace {

// Whether `a` is a literal of the operations' dtype with that value.
bool is_number(const Atom& a, double value) {
  if (!a.is_literal()) return false;
  const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
  if (value == 0) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, literal.value, static_cast<std::size_t>(itemsize(literal.type.dtype())));
    return bits == 0;
  }
  float f;
  if (literal.type.dtype() != DType::f32) return false;
  std::memcpy(&f, literal.value, sizeof f);
  return f == static_cast<float>(value);
}

// Finds the equations from v to the result of an activation of v.
class ActivationFinder {
 public:
  ActivationFinder(const ProgramIndex& program, const Var* v) : program_(program), v_(v) {}

  // Returns the last of these equations, or -1; `members` receives all of them.
  int find_relu(std::vector<int>* members) const {
    if (const int user = program_.only_user(v_); user >= 0) {
      const Eqn& e = program_.eqn(user);
      if (e.primitive != &max_p || !(is_number(e.in[0], 0) || is_number(e.in[1], 0))) return -1;
      members->push_back(user);
      return user;
    }
    // select_n (le x 0) x 0
    const std::span<const int> users = program_.users(v_);
    if (users.size() != 2 || program_.reads(v_) != 2) return -1;
    const Eqn &le = program_.eqn(users[0]), &select = program_.eqn(users[1]);
    if (le.primitive != &le_p || le.in[0].var() != v_ || !is_number(le.in[1], 0) ||
        select.primitive != &select_n_p || select.in.size() != 3 ||
        select.in[0].var() != le.out[0].get() || select.in[1].var() != v_ ||
        !is_number(select.in[2], 0) || program_.only_user(le.out[0].get()) != users[1])
      return -1;
    members->insert(members->end(), users.begin(), users.end());
    return users[1];
  }

  // gelu as core/ops/nn.cpp writes it, in f32: x · ½ (1 + tanh(√(2/π) (x + 0.044715 x³))).
  int find_gelu(std::vector<int>* members) {
    members_.clear();
    const Var* x = v_;
    const DType dtype = v_->type.dtype();
    if (is_half(dtype)) {
      x = after(x, convert_element_type_p);
      if (!x || x->type.dtype() != DType::f32) return -1;
    } else if (dtype != DType::f32) {
      return -1;
    }
    if (program_.reads(x) != 4 || program_.is_result(x)) return -1;
    const Var* y = nullptr;
    for (int i : program_.users(x)) {
      if (program_.eqn(i).primitive != &square_p) continue;
      members_.push_back(i);
      y = program_.eqn(i).out[0].get();
    }
    y = after(y, mul_p, x);
    y = after(y, mul_p, 0.044715);
    y = after(y, add_p, x);
    y = after(y, mul_p, 0.79788456080286535588);
    y = after(y, tanh_p);
    y = after(y, add_p, 1);
    y = after(y, mul_p, 0.5);
    y = after(y, mul_p, x);
    if (dtype != DType::f32) y = after(y, convert_element_type_p);
    if (!y || y->type.dtype() != dtype) return -1;
    members->insert(members->end(), members_.begin(), members_.end());
    return members_.back();
  }

 private:
  // The result of the only equation that reads y, if the equation is a call of p and `fits`; else
  // null.
  template <class F>
  const Var* step(const Var* y, const Primitive& p, F fits) {
    const int i = y ? program_.only_user(y) : -1;
    if (i < 0 || program_.eqn(i).primitive != &p || !fits(program_.eqn(i))) return nullptr;
    members_.push_back(i);
    return program_.eqn(i).out[0].get();
  }
  const Var* after(const Var* y, const Primitive& p) {
    return step(y, p, [](const Eqn&) { return true; });
  }
  const Var* after(const Var* y, const Primitive& p, const Var* other) {
    return step(y, p, [&](const Eqn& e) { return e.in[e.in[0].var() == y].var() == other; });
  }
  const Var* after(const Var* y, const Primitive& p, double other) {
    return step(y, p, [&](const Eqn& e) { return is_number(e.in[e.in[0].var() == y], other); });
  }

  const ProgramIndex& program_;
  const Var* v_;
  std::vector<int> members_;
};

}  // namespace

FoundActivation find_activation(const ProgramIndex& program, const Var* value) {
  ActivationFinder finder(program, value);
  FoundActivation found;
  if (finder.find_relu(&found.eqns) >= 0) {
    found.activation = Activation::relu;
  } else if (finder.find_gelu(&found.eqns) >= 0) {
    found.activation = Activation::gelu;
  }
  return found;
}

}  // namespace shmap
