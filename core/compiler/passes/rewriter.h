// Writes the program that a pass makes from another program.
#pragma once
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Makes a program with the arguments, results and mesh axes of `from`, in one of two ways: a new
// list of equations (add, keep, become, write_out), or edits of single equations (put, remove).
// run_passes checks the result (core/compiler/passes/pass.h).
class Rewriter {
 public:
  // `from` must outlive this object.
  explicit Rewriter(const Jaxpr& from) : from_(from) {}

  // ---- a new list of equations
  void reserve(std::size_t eqns) { eqns_.reserve(eqns); }
  void add(Eqn e) {
    anew_ = true;
    eqns_.push_back(std::move(e));
  }
  // Adds an equation, with its operands replaced as become() says.
  void keep(Eqn e) {
    for (Atom& a : e.in) rename(a);
    add(std::move(e));
  }
  // From now on, keep and rename read `v` as `value`.
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
  // Adds the equations of `program`, with `args` in place of its first binders, and returns its
  // results. With fresh variables one program may be written out several times. each(Eqn&) is
  // called for each equation, with its operands already replaced: it returns the results of
  // equations that it added instead, or nothing, and then the equation itself is added.
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
  // Replaces equation i of `from`.
  void put(int i, Eqn e);
  void remove(int i);
  // Whether equation i was removed or replaced.
  bool is_gone(int i) const { return !gone_.empty() && gone_[static_cast<std::size_t>(i)]; }
  bool is_edited() const { return !gone_.empty(); }

  // ---- the program
  JaxprRef finish();
  // With other arguments and results.
  JaxprRef finish(std::vector<VarRef> binders, std::vector<Atom> outs);

 private:
  void write_edited();

  const Jaxpr& from_;
  bool anew_ = false;  // whether equations are a new list; otherwise `from` with edits
  std::vector<Eqn> eqns_;
  PointerMap<std::uint32_t> names_;  // variables that are read as others: indices in values_
  std::vector<Atom> values_;
  std::vector<bool> gone_;
  std::unordered_map<int, Eqn> put_;
};

}  // namespace shmap
