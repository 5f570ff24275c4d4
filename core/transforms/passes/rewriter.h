// Writing the program that a pass makes of another one.
#pragma once
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// A program of the arguments, results and mesh axes of `from`, in one of two ways: written anew,
// equation by equation (add, keep, become, write_out), or as edits of single equations (put,
// remove). Whoever runs the pass checks what it made (core/transforms/passes/pass.h).
class Rewriter {
 public:
  // `from` has to outlive it.
  explicit Rewriter(const Jaxpr& from) : from_(from) {}

  // ---- written anew
  void reserve(std::size_t eqns) { eqns_.reserve(eqns); }
  void add(Eqn e) {
    anew_ = true;
    eqns_.push_back(std::move(e));
  }
  // Likewise, reading what its operands have become.
  void keep(Eqn e) {
    for (Atom& a : e.in) rename(a);
    add(std::move(e));
  }
  // From now on `v` is read as `value`.
  void become(const Var* v, Atom value);
  void rename(Atom& a) const {
    if (names_.empty() || a.is_literal()) return;
    if (const std::uint32_t* i = names_.find(a.var())) a = values_[*i];
  }
  Atom now(Atom a) const {
    rename(a);
    return a;
  }
  const std::vector<Eqn>& eqns() const { return eqns_; }

  enum class Vars : std::uint8_t { own, fresh };
  // The equations of `program`, whose first binders stand for `args`, and its results. With fresh
  // variables it may be written out more than once. each(Eqn&): the results of an equation, whose
  // operands are those of this program, where it wrote something else in its place; or nothing.
  template <class Each>
  std::vector<Atom> write_out(const Jaxpr& program, std::span<const Atom> args, Vars vars,
                              Each each) {
    anew_ = true;
    VarMap<Atom> values;
    for (std::size_t i = 0; i < args.size(); ++i) values.emplace(program.binders[i].get(), args[i]);
    const auto read = [&](const Atom& a) {
      const auto it = a.is_literal() ? values.end() : values.find(a.var());
      return it == values.end() ? a : it->second;
    };
    for (const Eqn& original : program.eqns) {
      Eqn e = original;
      for (Atom& a : e.in) a = read(a);
      if (const std::optional<std::vector<Atom>> results = each(e)) {
        for (std::size_t o = 0; o < e.out.size(); ++o)
          values.emplace(e.out[o].get(), (*results)[o]);
        continue;
      }
      for (VarRef& v : e.out) {
        if (vars == Vars::own) break;
        const VarRef mine = make_ref<const Var>(v->type);
        values.emplace(v.get(), Atom(mine));
        v = mine;
      }
      add(std::move(e));
    }
    std::vector<Atom> outs;
    for (const Atom& a : program.outs) outs.push_back(read(a));
    return outs;
  }
  std::vector<Atom> write_out(const Jaxpr& program, std::span<const Atom> args, Vars vars) {
    return write_out(program, args, vars, [](const Eqn&) { return std::nullopt; });
  }

  // ---- edits
  // Another equation in the place of equation i of `from`.
  void put(int i, Eqn e);
  void remove(int i);
  // Whether equation i was removed, or another one put in its place.
  bool is_gone(int i) const { return !gone_.empty() && gone_[static_cast<std::size_t>(i)]; }
  bool is_edited() const { return !gone_.empty(); }

  // ---- the program
  JaxprRef finish();
  // Of other arguments and results.
  JaxprRef finish(std::vector<VarRef> binders, std::vector<Atom> outs);

 private:
  void write_edited();

  const Jaxpr& from_;
  bool anew_ = false;  // else `from`, with its edits
  std::vector<Eqn> eqns_;
  PointerMap<std::uint32_t> names_;  // of variables that are read as others: places in values_
  std::vector<Atom> values_;
  std::vector<bool> gone_;
  std::unordered_map<int, Eqn> put_;
};

}  // namespace shmap
