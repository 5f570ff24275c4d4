#include "core/compiler/passes/simplify.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "collectives/primitives.h"
#include "core/base/pointer_map.h"
#include "core/compiler/passes/algebra.h"
#include "core/compiler/passes/dead_code.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ir/nesting.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/shape_params.h"
#include "core/runtime/host_transfer.h"

namespace shmap {

namespace {

// A hash table of equations by primitive, parameters and operands. Its keys are bytes in one
// string.
class EqnTable {
 public:
  EqnTable(std::size_t eqns, const detail::AxisEnv* env) : env_(env) {
    std::size_t n = 16;
    while (n < 2 * eqns) n *= 2;
    entries_.resize(n);
    bytes_.reserve(48 * eqns);
  }

  // The number of an equal earlier equation; `number` where there is none.
  std::uint32_t find_or_add(const Eqn& e, std::uint32_t number) {
    const std::size_t begin = bytes_.size();
    raw(e.primitive);
    raw(e.params->mesh());  // the key of parameters has only the axes of a mesh
    raw(e.in.size());
    for (const Atom& a : e.in) add(a);
    // Where variance is not checked, equal equations may declare different axes.
    for (const VarRef& v : e.out) raw(env_ ? v->type.axes().mask_in(*env_) : 0u);
    if (e.params.get() != &no_params) append_key(*e.params, bytes_);
    const std::size_t size = bytes_.size() - begin;
    const std::uint64_t hash = hash_of(bytes_.data() + begin, size);
    std::size_t i = hash & (entries_.size() - 1);
    for (;; i = (i + 1) & (entries_.size() - 1)) {
      Entry& s = entries_[i];
      if (s.size == 0) {
        s = {hash, begin, size, number};
        return number;
      }
      if (s.hash == hash && s.size == size &&
          std::memcmp(bytes_.data() + s.begin, bytes_.data() + begin, size) == 0) {
        bytes_.resize(begin);
        return s.eqn;
      }
    }
  }

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::size_t begin = 0, size = 0;
    std::uint32_t eqn = 0;
  };

  template <class T>
  void raw(const T& v) {
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  // A variable is represented by its address, a literal by a small number for its dtype and by its
  // value: the two cannot be equal.
  void add(const Atom& a) {
    if (!a.is_literal()) return raw(a.var());
    const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
    raw(std::uint64_t{1} + 2 * static_cast<std::uint64_t>(literal.type.dtype()) +
        (literal.type.weak() ? 256u : 0u));
    raw(literal.value);
  }
  static std::uint64_t hash_of(const char* p, std::size_t size) {
    std::uint64_t h = 0x9e3779b97f4a7c15 ^ size;
    const auto mix = [&](std::uint64_t word) {
      h = (h ^ word) * 0xff51afd7ed558ccd;
      h ^= h >> 32;
    };
    for (; size >= 8; p += 8, size -= 8) {
      std::uint64_t word;
      std::memcpy(&word, p, 8);
      mix(word);
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, p, size);
    mix(rest);
    return h;
  }

  const detail::AxisEnv* env_;
  std::vector<Entry> entries_;
  std::string bytes_;
};

bool is_plain_scalar(const ShapedArray& t) {
  return t.rank() == 0 && t.axes().empty() && t.dtype() != DType::prng_key;
}

// An operation on literals alone, whose value is the same wherever it is computed.
bool is_constant(const Eqn& e) {
  const Primitive& p = *e.primitive;
  if (e.in.empty() || p.has_effect || p.interpret || p.group || p.variance) return false;
  return std::all_of(e.in.begin(), e.in.end(), [](const Atom& a) { return a.is_literal(); }) &&
         std::all_of(e.out.begin(), e.out.end(),
                     [](const VarRef& v) { return is_plain_scalar(v->type); });
}

// The results as literals. Empty where the operation throws: the error must occur when the program
// runs.
std::vector<Atom> evaluate(const Eqn& e) {
  TraceScope scope(base_trace());
  std::vector<Array> in, out(e.out.size());
  for (const Atom& a : e.in) in.push_back(a.literal());
  std::vector<Atom> results;
  try {
    base_trace().process(*e.primitive, in, *e.params, out, e.source);
    for (std::size_t o = 0; o < out.size(); ++o) {
      auto* literal = new LiteralNode(e.out[o]->type);
      Atom atom(Array::first(literal));
      const std::vector<std::byte> bytes = copy_to_host(out[o], "a constant");
      std::copy(bytes.begin(), bytes.end(), literal->value);
      results.push_back(std::move(atom));
    }
  } catch (const Error&) {
    results.clear();
  }
  return results;
}

struct Programs {
  // The simplified programs of equations, since several equations may hold the same program.
  PointerMap<JaxprRef> known;
  // the keys of `known`, kept alive so that no other program gets their addresses
  std::vector<JaxprRef> alive;
  PruneMemo pruned;
  // whether equations outside of mapped bodies must keep the shardings of their results
  bool global = false;
};
JaxprRef simplify_with(const Jaxpr& jaxpr, Programs& programs);

// Visits the equations from first to last. Each reads the replacements of its operands; then it
// stays, or its results become names for earlier values.
class Forward {
 public:
  Forward(const Jaxpr& jaxpr, Programs& programs)
      : old_(jaxpr),
        programs_(programs),
        algebra_(!programs.global || jaxpr.env != nullptr),
        table_(jaxpr.eqns.size(), jaxpr.env),
        made_(jaxpr) {}

  // Null where nothing changed.
  JaxprRef run() {
    made_.reserve(old_.eqns.size());
    for (const Eqn& e : old_.eqns) visit(e);
    return changed_ ? made_.finish() : JaxprRef();
  }

 private:
  void visit(const Eqn& original) {
    Eqn e = original;
    for (Atom& a : e.in) made_.rename(a);
    if (e.primitive->interpret) {
      if (e.primitive->programs.replace) simplify_inside(e);
      if (has_effect(e)) return keep(std::move(e));
    } else if (e.primitive->has_effect) {
      return keep(std::move(e));
    }
    if (algebra_ && composes(*e.primitive) && !e.in[0].is_literal()) {
      const std::uint32_t* first = views_.find(e.in[0].var());
      if (first && made_.eqns()[*first].primitive == e.primitive) {
        compose(e, made_.eqns()[*first]);
        changed_ = true;
      }
    }
    if (algebra_ && e.primitive == &pscatter_p) repeat_less(e);
    if (algebra_ && e.in.size() > 1 && e.primitive->elementwise) take_scalars(e);
    if (const Atom* same = algebra_ ? identity_of(e) : nullptr) return become(e.out[0], *same);
    if (is_constant(e)) {
      const std::vector<Atom> values = evaluate(e);
      for (std::size_t o = 0; o < values.size(); ++o) become(e.out[o], values[o]);
      if (!values.empty()) return;
    }
    const auto number = static_cast<std::uint32_t>(made_.eqns().size());
    const std::uint32_t earlier = table_.find_or_add(e, number);
    if (earlier == number) return keep(std::move(e));
    for (std::size_t o = 0; o < e.out.size(); ++o)
      become(e.out[o], Atom(made_.eqns()[earlier].out[o]));
  }

  // The literal of which `a` is a broadcast; null where it is not.
  const Atom* repeated_scalar(const Atom& a) const {
    if (a.is_literal()) return nullptr;
    const std::uint32_t* made_by = views_.find(a.var());
    if (!made_by) return nullptr;
    const Eqn& e = made_.eqns()[*made_by];
    if (e.primitive != &broadcast_in_dim_p || !e.in[0].is_literal()) return nullptr;
    const ShapedArray& scalar = e.in[0].type();
    return scalar.rank() == 0 && scalar.weak() == a.type().weak() ? &e.in[0] : nullptr;
  }

  // Replaces operands that are broadcasts of literals by the literals. At least one operand must
  // keep the shape of the result; of a clamp, the value between the bounds.
  void take_scalars(Eqn& e) {
    const int rank = e.out[0]->type.rank();
    const bool shaped = std::any_of(e.in.begin(), e.in.end(), [&](const Atom& a) {
      return a.type().rank() == rank && !repeated_scalar(a);
    });
    if (rank == 0 || !shaped) return;
    for (std::size_t i = 0; i < e.in.size(); ++i) {
      const Atom* const scalar = repeated_scalar(e.in[i]);
      if (!scalar || (e.primitive == &clamp_p && i == 1)) continue;
      e.in[i] = Atom(*scalar);
      changed_ = true;
    }
  }

  // Swaps pscatter and broadcast: a device's part of a broadcast value is a broadcast of a part of
  // the operand, or of the whole operand. A row or column is then not repeated for all devices
  // first.
  void repeat_less(Eqn& e) {
    const auto& cut = params_as<ScatterParams>(*e.params);
    const std::uint32_t* made_by = e.in[0].is_literal() ? nullptr : views_.find(e.in[0].var());
    if (!cut.tiled || !made_by) return;
    const Eqn repeated = made_.eqns()[*made_by];
    if (repeated.primitive != &broadcast_in_dim_p || repeated.in[0].is_literal()) return;
    auto params = std::make_shared<BroadcastParams>(params_as<BroadcastParams>(*repeated.params));
    const ShapedArray& from = repeated.in[0].type();
    const AxisSet& axes = e.out[0]->type.axes();
    params->shape = e.out[0]->type.dims();
    Shape part = from.dims();
    Eqn inside{nullptr, repeated.in, nullptr, {}, e.source};
    for (std::size_t d = 0; d < params->dims.size(); ++d) {
      if (params->dims[d] != cut.dimension || part[d] == 1) continue;
      auto mine = std::make_shared<ScatterParams>(cut);
      mine->dimension = static_cast<int>(d);
      part[d] /= cut.ranks;
      inside.primitive = &pscatter_p;
      inside.params = std::move(mine);
    }
    if (!inside.primitive && !from.axes().contains(axes)) {
      inside.primitive = &pbroadcast_p;
      inside.params = std::make_shared<AxesParams>(cut.axes);
    }
    e.in = repeated.in;
    if (inside.primitive) {
      own_.push_back(make_ref<const Var>(ShapedArray(part, from.dtype(), from.weak(), axes)));
      inside.out = {own_.back()};
      visit(inside);
      e.in = {made_.now(Atom(inside.out[0]))};
    }
    e.primitive = &broadcast_in_dim_p;
    e.params = std::move(params);
    changed_ = true;
  }

  void keep(Eqn e) {
    if (composes(*e.primitive))
      views_[e.out[0].get()] = static_cast<std::uint32_t>(made_.eqns().size());
    made_.add(std::move(e));
  }

  void become(const VarRef& v, const Atom& value) {
    made_.become(v.get(), value);
    changed_ = true;
  }

  void simplify_inside(Eqn& e) {
    bool changed = false;
    std::vector<JaxprRef> inside;
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) {
      inside.push_back(simplify_with(*inner, programs_));
      changed = changed || inside.back().get() != inner;
    }
    if (!changed) return;
    e.params = e.primitive->programs.replace(*e.params, inside);
    changed_ = true;
  }

  const Jaxpr& old_;
  Programs& programs_;
  const bool algebra_;
  EqnTable table_;
  Rewriter made_;
  PointerMap<std::uint32_t> views_;  // broadcasts, reshapes and transpositions, by result
  // new variables, kept alive so that no other variable gets their addresses
  std::vector<VarRef> own_;
  bool changed_ = false;
};

JaxprRef simplify_with(const Jaxpr& jaxpr, Programs& programs) {
  // Programs that were simplified with the program around them need no second pass.
  if (jaxpr.facts.has(JaxprFacts::simple)) return JaxprRef(&jaxpr);
  if (const JaxprRef* known = programs.known.find(&jaxpr)) return *known;
  const PassVisit visit("simplify", jaxpr);
  const JaxprRef forward = Forward(jaxpr, programs).run();
  JaxprRef made = remove_dead_code(forward ? *forward : jaxpr, programs.pruned);
  if (made.get() == &jaxpr && !programs.global) jaxpr.facts.add(JaxprFacts::simple);
  programs.known[&jaxpr] = made;
  programs.alive.push_back(JaxprRef(&jaxpr));
  return made;
}

}  // namespace

JaxprRef simplify(const Jaxpr& jaxpr) {
  Programs programs;
  return simplify_with(jaxpr, programs);
}

JaxprRef simplify_global(const Jaxpr& jaxpr) {
  Programs programs;
  programs.global = true;
  return simplify_with(jaxpr, programs);
}

void register_pass_simplify() {
  register_pass({.order = PassOrder::simplify, .name = "simplify", .run = of_program<simplify>});
}

}  // namespace shmap
