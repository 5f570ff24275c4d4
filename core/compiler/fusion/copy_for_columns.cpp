#include "core/compiler/fusion/copy_for_columns.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compiler/fusion/column_rules.h"
#include "core/compiler/fusion/fuse_rules.h"
#include "core/compiler/fusion/fused_from_fused.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/elementwise.h"
#include "core/runtime/fused_columns.h"

namespace shmap {

namespace {

// Finds the values to copy for each reduction of columns, and then writes the program again with
// the copies, each before its reader.
class ColumnCopier {
 public:
  explicit ColumnCopier(const Jaxpr& jaxpr) : program_(jaxpr), made_(jaxpr) {}

  JaxprRef run() {
    for (int i = 0; i < program_.size(); ++i) {
      FuseSpace space;
      if (reduces_columns(program_.eqn(i), &space)) choose_copies(i);
    }
    if (copied_.empty()) return JaxprRef(&program_.jaxpr());
    for (int i = 0; i < program_.size(); ++i) {
      const auto found = copied_.find(i);
      if (found == copied_.end()) {
        made_.add(program_.eqn(i));
        continue;
      }
      Eqn reader = program_.eqn(i);
      const Var* const shared = found->second;
      const Atom copy = copy_of(program_.maker(Atom(VarRef(shared))));
      for (Atom& a : reader.in)
        if (!a.is_literal() && a.var() == shared) a = copy;
      made_.add(std::move(reader));
    }
    return made_.finish();
  }

 private:
  // True if the operand has as many elements as the result of e: it is not repeated in e.
  static bool is_full(const Atom& a, const Eqn& e) {
    return !a.is_literal() && a.type().size() == e.out[0]->type.size();
  }

  // Follows the elementwise operations that the reduction reads back to the first values that
  // others read too. Notes that the reader of such a value gets a copy of it if a copy is worth it.
  // Stops after as many operations as a fused program has at most.
  void choose_copies(int reduction) {
    Followers followers{reduction, {true}};
    std::vector<int> readers = {reduction};
    for (std::size_t next = 0; next < readers.size() && next < std::size_t{kMostFusedOps}; ++next) {
      const int reader = readers[next];
      const Eqn& e = program_.eqn(reader);
      for (const Atom& a : e.in) {
        if (reader != reduction && !is_full(a, e)) continue;
        const int maker = a.is_literal() ? -1 : program_.maker(a);
        if (maker < 0 || fuse_role(program_.eqn(maker)) != FuseRole::map) continue;
        if (program_.reads(a.var()) == 1 && !program_.is_result(a.var())) {
          readers.push_back(maker);
        } else if (is_cheap(program_.eqn(maker)) && others_follow(followers, a.var(), reader)) {
          copied_[reader] = a.var();
        }
      }
    }
  }

  // True if computing e again takes no longer than reading its value: e is a sum, difference or
  // product that reads one array of the size of its result, and that array is in memory anyway.
  bool is_cheap(const Eqn& e) const {
    if (e.primitive != &add_p && e.primitive != &sub_p && e.primitive != &mul_p) return false;
    int arrays = 0;
    for (const Atom& a : e.in) {
      if (!is_full(a, e) || is_made_as(FuseRole::broadcast, a)) continue;
      if (!is_stored(a)) return false;
      ++arrays;
    }
    return arrays == 1;
  }
  bool is_made_as(FuseRole role, const Atom& a) const {
    const Eqn* const maker = program_.made_by(a);
    return maker != nullptr && fuse_role(*maker) == role;
  }
  // True for arguments and the results of operations that are never fused: fuse() may leave any
  // other value without memory.
  bool is_stored(const Atom& a) const {
    return program_.made_by(a) == nullptr || is_made_as(FuseRole::other, a);
  }

  // The equations from a reduction on, as far as they have been looked at: whether each is the
  // reduction, or reads its result, directly or not.
  struct Followers {
    int reduction;
    std::vector<bool> needs;
  };
  bool follows(Followers& followers, int i) const {
    const int reduction = followers.reduction;
    std::vector<bool>& needs = followers.needs;
    while (reduction + static_cast<int>(needs.size()) <= i) {
      const Eqn& e = program_.eqn(reduction + static_cast<int>(needs.size()));
      needs.push_back(std::any_of(e.in.begin(), e.in.end(), [&](const Atom& a) {
        const int maker = a.is_literal() ? -1 : program_.maker(a);
        return maker >= reduction && needs[static_cast<std::size_t>(maker - reduction)];
      }));
    }
    return i >= reduction && needs[static_cast<std::size_t>(i - reduction)];
  }

  // True if every reader of v except `reader` needs the reduction's result. Such readers cannot
  // share a fused program with `reader`, in which v would be computed once.
  bool others_follow(Followers& followers, const Var* v, int reader) const {
    for (const int user : program_.users(v))  // in order
      if (user != reader && !follows(followers, user)) return false;
    return !program_.is_result(v);
  }

  // Adds a copy of an equation, of the broadcasts that it reads, and of the small values behind
  // them, so that the copy and the original share no equation. Returns the copy's result.
  Atom copy_of(int i) {
    Eqn e = program_.eqn(i);
    for (Atom& a : e.in) {
      const int maker = a.is_literal() ? -1 : program_.maker(a);
      if (maker < 0) continue;
      const FuseRole role = fuse_role(program_.eqn(maker));
      const bool is_small = role == FuseRole::map && !is_full(a, program_.eqn(i));
      if (role == FuseRole::broadcast || is_small) a = copy_of_small(maker);
    }
    return add_copy(std::move(e));
  }
  Atom copy_of_small(int i) {
    Eqn e = program_.eqn(i);
    for (Atom& a : e.in) {
      const int maker = a.is_literal() ? -1 : program_.maker(a);
      if (maker >= 0 && fuse_role(program_.eqn(maker)) == FuseRole::map) a = copy_of_small(maker);
    }
    return add_copy(std::move(e));
  }
  Atom add_copy(Eqn e) {
    const VarRef mine = make_ref<const Var>(e.out[0]->type);
    e.out = {mine};
    made_.add(std::move(e));
    return Atom(mine);
  }

  const ProgramIndex program_;
  Rewriter made_;
  // For each equation that will read a copy: the value that the copy replaces.
  std::unordered_map<int, const Var*> copied_;
};

}  // namespace

JaxprRef copy_for_columns(const Jaxpr& jaxpr) { return ColumnCopier(jaxpr).run(); }

void register_pass_copy_for_columns() {
  register_pass({.order = PassOrder::copy_for_columns,
                 .name = "copy_for_columns",
                 .run = of_program<copy_for_columns>,
                 .makes = &fused_columns_p,  // created by the pass fuse_columns
                 .merges = true});
}

}  // namespace shmap
