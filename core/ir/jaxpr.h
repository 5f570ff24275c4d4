// Jaxpr: a program as data (autodidax, part 2; JAX's core.Jaxpr), explicitly typed, first order, in
// A-normal form.
//
//   { lambda a:f32[3,4]{i} .
//     let b:f32[]{i} = reduce_sum[axes=(0, 1)] a
//         c:f32[] = psum[axes=('i',)] b
//     in ( c ) }
//
// A jaxpr is immutable once built, and shared: passes make new jaxprs, which may have variables in
// common with the old ones. Control flow, jit and shard_map are equations whose parameters contain
// jaxprs.
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

// An operand of an equation: a variable or a literal. A literal is a host scalar, which is equal on
// all devices: its type has no variance.
class Atom {
 public:
  Atom(VarRef var) : var_(std::move(var)) {}
  // `literal`: an Array that holds a host scalar.
  explicit Atom(Array literal) : literal_(std::move(literal)) {}

  bool is_literal() const { return !var_; }
  const Var* var() const { return var_.get(); }  // null for a literal
  const VarRef& ref() const { return var_; }
  const Array& literal() const { return literal_; }
  const ShapedArray& type() const;
  // Equal where both are the same variable, or literals with equal dtype, weakness and bits.
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

// Whether the equation must be kept, in program order, even if its results are unused: its
// primitive has an effect, or a program in its parameters has one.
bool has_effect(const Eqn& eqn);
// The programs in the parameters of an equation, in the order of the parameters. The pointers live
// as long as `params`.
std::vector<const Jaxpr*> inner_jaxprs(const Params& params);

// Facts about a program that passes find out and store, so that later passes need not find them out
// again for every level of nested programs. A copy of a program begins without facts. Thread-safe.
class JaxprFacts {
 public:
  enum Fact : std::uint8_t {
    checked = 1,        // typecheck_jaxpr has accepted it
    effects_known = 2,  // `effects` has been computed
    effects = 4,        // the program has effects
    simple = 8,         // simplify has left it unchanged
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

// A cache slot of a program, for data that a higher room derives from the program (derivatives,
// plans) and that lives as long as it. The data must not own the program, since neither would then
// be freed. A copy of a program starts with an empty slot. Thread-safe.
class KeptWithJaxpr {
 public:
  struct Kept {
    virtual ~Kept() = default;
  };
  KeptWithJaxpr() = default;
  KeptWithJaxpr(const KeptWithJaxpr&) noexcept {}
  KeptWithJaxpr& operator=(const KeptWithJaxpr&) = delete;
  ~KeptWithJaxpr() { delete kept_.load(std::memory_order_acquire); }

  // The room's object, of a T that derives from Kept; the first call makes it.
  template <class T>
  T& get() const {
    Kept* kept = kept_.load(std::memory_order_acquire);
    if (kept == nullptr) {
      auto made = std::make_unique<T>();
      if (kept_.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel))
        kept = made.release();
    }
    return static_cast<T&>(*kept);
  }

 private:
  mutable std::atomic<Kept*> kept_{nullptr};
};

struct Jaxpr : RefCounted {
  std::vector<VarRef> binders;
  std::vector<Eqn> eqns;
  std::vector<Atom> outs;
  // The mesh axes in scope; null outside every shard_map.
  const detail::AxisEnv* env = nullptr;
  // true: the operands of an equation must vary over the same axes. false (check_vma = false):
  // variance is only inferred.
  bool checks_variance = true;
  JaxprFacts facts;
  KeptWithJaxpr derived;  // core/transforms/autodiff/derived.cpp
  KeptWithJaxpr plans;    // core/transforms/jit/jit.cpp
};
using JaxprRef = Ref<const Jaxpr>;

// A new program with the mesh axes and the check of variance of `like`.
inline Ref<Jaxpr> jaxpr_like(const Jaxpr& like, std::vector<VarRef> binders, std::vector<Eqn> eqns,
                             std::vector<Atom> outs) {
  auto made = make_ref<Jaxpr>();
  made->binders = std::move(binders);
  made->eqns = std::move(eqns);
  made->outs = std::move(outs);
  made->env = like.env;
  made->checks_variance = like.checks_variance;
  return made;
}

namespace detail {
// A jaxpr and the values of its first binders.
struct ClosedJaxprImpl {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  // The shardings of the arguments for which the program was traced, for cost_analysis. An entry is
  // null where the argument was on a single device or was only a type; the list is empty where all
  // entries would be null.
  std::vector<const Sharding*> in_shardings;
};
}  // namespace detail
ClosedJaxpr close_jaxpr(JaxprRef jaxpr, std::vector<Array> consts,
                        std::vector<const Sharding*> in_shardings = {});

// Checks that variables are bound before their use, are bound once, and have the types that their
// equations compute. Throws a TypeError that names the equation, its line and both types. Where the
// jaxpr checks variance, all operands of an equation must vary over the same axes. Programs in
// equations are checked too.
JaxprType typecheck_jaxpr(const Jaxpr& jaxpr);
// typecheck_jaxpr, in builds with SHMAP_CHECK_JAXPRS (debugging and tests). Every pass calls it for
// its result; `pass` names the pass.
void check_pass(const Jaxpr& jaxpr, const char* pass);

// A map keyed by a variable's address.
template <class T>
using VarMap = std::unordered_map<const Var*, T>;

std::string to_string(const Jaxpr& jaxpr, PrintOptions options = {});

}  // namespace shmap
