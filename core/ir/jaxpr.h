// Jaxpr: a program as data (autodidax, part 2; JAX's core.Jaxpr): explicitly typed, first order, in
// A-normal form.
//
//   { lambda a:f32[3,4]{i} .
//     let b:f32[]{i} = reduce_sum[axes=(0, 1)] a
//         c:f32[] = psum[axes=('i',)] b
//     in ( c ) }
//
// A jaxpr is immutable once built, and shared: passes make new ones of the same variables. Control
// flow, jit and shard_map are equations whose parameters hold a jaxpr.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ir/primitive.h"
#include "core/ir/var.h"
#include "shmap/array.h"
#include "shmap/jaxpr.h"

namespace shmap {

class Sharding;

// What an equation reads: a variable, or a literal: a host scalar, whose type says nothing of
// device variance, since it is the same everywhere.
class Atom {
 public:
  Atom(VarRef var) : var_(std::move(var)) {}
  // `literal` is an Array that holds a host scalar.
  explicit Atom(Array literal) : literal_(std::move(literal)) {}

  bool is_literal() const { return !var_; }
  const Var* var() const { return var_.get(); }  // null for a literal
  const VarRef& ref() const { return var_; }
  const Array& literal() const { return literal_; }
  const ShapedArray& type() const;
  // The same variable, or equal literals: dtype, weakness and bits.
  friend bool operator==(const Atom& a, const Atom& b);

 private:
  VarRef var_;
  Array literal_;
};

struct Eqn {
  const Primitive* primitive;
  std::vector<Atom> in;
  std::shared_ptr<const Params> params;
  std::vector<VarRef> out;
  SourceLine source;
};

// Whether it has to stay, and to stay in order, whatever its results are used for: its primitive
// has an effect, or a program inside it has one.
bool has_effect(const Eqn& eqn);
// The programs inside an equation, in the order of its parameters.
std::vector<const Jaxpr*> inner_jaxprs(const Params& params);

// What is known of a program, once it is built, so that it is found out once: passes go over
// programs inside of programs, and each level would do so anew. A copy is another program.
class JaxprFacts {
 public:
  enum Fact : std::uint8_t {
    checked = 1,        // typecheck_jaxpr accepted it
    effects_known = 2,  // whether it has effects has been looked up
    effects = 4,
    simple = 8,  // simplify left it as it was
  };
  JaxprFacts() = default;
  JaxprFacts(const JaxprFacts&) noexcept {}
  JaxprFacts& operator=(const JaxprFacts&) = delete;

  bool has(Fact fact) const { return facts_.load(std::memory_order_relaxed) & fact; }
  void add(int facts) const {
    facts_.fetch_or(static_cast<std::uint8_t>(facts), std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<std::uint8_t> facts_{0};
};

struct Jaxpr : RefCounted {
  std::vector<VarRef> binders;
  std::vector<Eqn> eqns;
  std::vector<Atom> outs;
  // The mesh axes in scope; null outside every shard_map.
  const detail::AxisEnv* env = nullptr;
  // Whether operands must vary alike (typed mode), or variance is only inferred (check_vma =
  // false).
  bool checks_variance = true;
  JaxprFacts facts;
};
using JaxprRef = Ref<const Jaxpr>;

// A jaxpr and the values of its first binders.
namespace detail {
struct ClosedJaxprImpl {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  // How the arrays for which it was traced were split, for what it costs on their devices. Null
  // where one was on a single device, or is a type alone; none at all where that goes for all.
  std::vector<const Sharding*> in_shardings;
};
}  // namespace detail
ClosedJaxpr close_jaxpr(JaxprRef jaxpr, std::vector<Array> consts,
                        std::vector<const Sharding*> in_shardings = {});

// Finds unbound, rebound and mistyped variables: TypeError, which names the equation, its line and
// both types. Operands of an equation must vary over the same axes where the jaxpr checks variance.
// Programs inside equations are checked too.
JaxprType typecheck_jaxpr(const Jaxpr& jaxpr);
// typecheck_jaxpr where the library was built for debugging or for tests (SHMAP_CHECK_JAXPRS), as
// every pass does with what it made; `pass` names it.
void check_pass(const Jaxpr& jaxpr, const char* pass);

// Variables by their address.
template <class T>
using VarMap = std::unordered_map<const Var*, T>;

std::string to_string(const Jaxpr& jaxpr, PrintOptions options = {});

}  // namespace shmap
