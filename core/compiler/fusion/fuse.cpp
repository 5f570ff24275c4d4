#include "core/compiler/fusion/fuse.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "core/compiler/fusion/fuse_clusters.h"
#include "core/compiler/passes/eqn_order.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ir/node.h"

namespace shmap {

namespace {

// Makes the jaxpr in which clusters are equations.
class Fuser {
 public:
  explicit Fuser(const Jaxpr& jaxpr) : jaxpr_(jaxpr), clusters_(jaxpr) {}

  JaxprRef run() {
    std::vector<PositionedEqn> positioned;
    std::vector<bool> gone(jaxpr_.eqns.size(), false);
    bool any = false;
    for (const FuseCluster& found : clusters_.all()) {
      if (found.merged_into >= 0 || found.ops < 2) continue;
      FuseCluster x = found;
      any = true;
      std::sort(x.members.begin(), x.members.end(),
                [](const FuseMember& a, const FuseMember& b) { return a.eqn < b.eqn; });
      positioned.push_back({ClusterEqn(*this, x).make(), x.members.back().eqn});
      for (const FuseMember& m : x.members)
        if (!m.copy) gone[static_cast<std::size_t>(m.eqn)] = true;
    }
    if (!any) return JaxprRef(&jaxpr_);
    for (int i = 0; i < clusters_.program().size(); ++i)
      if (!gone[static_cast<std::size_t>(i)]) positioned.push_back({eqn(i), i});
    std::sort(
        positioned.begin(), positioned.end(),
        [](const PositionedEqn& a, const PositionedEqn& b) { return a.position < b.position; });
    Rewriter draft(jaxpr_);
    std::vector<bool> copied;
    for (PositionedEqn& p : positioned) {
      copied.push_back(p.eqn.primitive != &fused_p && clusters_.is_copied(p.position));
      draft.add(std::move(p.eqn));
    }
    return in_order(*without_unused_copies(*draft.finish(), copied));
  }

 private:
  struct PositionedEqn {
    Eqn eqn;
    int position;
  };

  const Eqn& eqn(int i) const { return clusters_.program().eqn(i); }
  const Var* result(int i) const { return eqn(i).out[0].get(); }

  // A cluster's equation while it is made.
  class ClusterEqn {
   public:
    ClusterEqn(const Fuser& fuser, const FuseCluster& cluster)
        : fuser_(fuser),
          clusters_(fuser.clusters_),
          x_(cluster),
          program_(std::make_shared<FusedProgram>(x_.split ? x_.space.rows : 1,
                                                  x_.split ? x_.space.cols : x_.space.elements())) {
      made_.primitive = &fused_p;
      for (const FuseMember& m : x_.members) values_[fuser_.result(m.eqn)] = -1;
    }

    Eqn make() {
      for (const FuseMember& m : x_.members) add_inputs(m);
      for (const FuseMember& m : x_.members) {
        values_[fuser_.result(m.eqn)] = add_operation(m);
        made_.source = fuser_.eqn(m.eqn).source;
      }
      // Full results come first, because a full result may take the memory of an operand.
      for (const FusedKind kind : {FusedKind::full, FusedKind::row}) add_outputs(kind);
      made_.params = std::make_shared<FusedParams>(std::move(program_));
      return std::move(made_);
    }

   private:
    // The operands that come from outside of the cluster, each once for each way in which it is
    // read.
    void add_inputs(const FuseMember& m) {
      for (const Atom& a : fuser_.eqn(m.eqn).in) {
        if (a.is_literal() || values_.count(a.var())) continue;
        const FuseRead read = clusters_.read_of(x_, m, a);
        const auto [it, is_new] = operands_.try_emplace(operand(a, read), 0);
        if (!is_new) continue;
        it->second = program_->add_input_like(
            {.dtype = a.type().dtype(), .kind = read.kind, .repeat = read.repeat});
        made_.in.push_back(a);
      }
    }

    // An operand, and how it is read.
    using Operand = std::tuple<const Var*, FusedKind, std::int64_t, std::int64_t>;
    static Operand operand(const Atom& a, const FuseRead& read) {
      return {a.var(), read.kind, read.repeat.every, read.repeat.count};
    }

    int value_of(const Atom& a, const FuseRead& read) {
      if (a.is_literal()) {
        const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
        return program_->add_literal(literal.type.dtype(), literal.value);
      }
      const auto it = values_.find(a.var());
      return it != values_.end() ? it->second : operands_.at(operand(a, read));
    }

    // The value of the member's result in the program.
    int add_operation(const FuseMember& m) {
      const Eqn& e = fuser_.eqn(m.eqn);
      std::vector<int> in;
      for (const Atom& a : e.in) in.push_back(value_of(a, clusters_.read_of(x_, m, a)));
      const int first = in[0];
      switch (clusters_.role(m.eqn)) {
        case FuseRole::map:
          return program_->add_map(*e.primitive, std::move(in), e.params);
        case FuseRole::draw:
          return program_->add_draw(*e.primitive, std::move(in), e.params);
        case FuseRole::reduce:
          return program_->add_reduce(*e.primitive, first);
        case FuseRole::broadcast:
          // In a space of one row a reduced element may be used as a scalar, which needs no
          // broadcast.
          return joint_kind(program_->kind(first), m.kind) == m.kind &&
                         program_->kind(first) != m.kind
                     ? program_->add_broadcast(first, m.kind)
                     : first;
        default:
          return first;
      }
    }

    void add_outputs(FusedKind kind) {
      for (const FuseMember& m : x_.members) {
        if (m.copy || m.kind != kind || clusters_.is_inner(m.eqn)) continue;
        int value = values_[fuser_.result(m.eqn)];
        if (program_->kind(value) != kind) value = program_->add_broadcast(value, kind);
        program_->add_output(value, fuser_.result(m.eqn)->type);
        made_.out.push_back(fuser_.eqn(m.eqn).out[0]);
      }
    }

    const Fuser& fuser_;
    const FuseClusters& clusters_;
    const FuseCluster& x_;
    std::shared_ptr<FusedProgram> program_;
    VarMap<int> values_;
    std::map<Operand, int> operands_;
    Eqn made_;
  };

  // copied: the equations of which clusters have copies.
  static JaxprRef without_unused_copies(const Jaxpr& draft, const std::vector<bool>& copied) {
    const ProgramIndex program(draft);
    std::vector<int> reads_gone(static_cast<std::size_t>(program.value_count()), 0);
    const auto gone = [&](const Var* v) -> int& {
      return reads_gone[static_cast<std::size_t>(program.number(v))];
    };
    Rewriter made(draft);
    for (int i = program.size(); i-- > 0;) {
      const Eqn& e = program.eqn(i);
      if (!copied[static_cast<std::size_t>(i)] ||
          program.reads(e.out[0].get()) > gone(e.out[0].get()))
        continue;
      for (const Atom& a : e.in)
        if (!a.is_literal()) ++gone(a.var());
      made.remove(i);
    }
    return made.is_edited() ? made.finish() : JaxprRef(&draft);
  }

  // Sorts the equations by their dependencies; equations that do not depend on each other keep
  // their order (a fused equation counts at the position of its last member).
  static JaxprRef in_order(const Jaxpr& draft) {
    const ProgramIndex program(draft);
    EqnOrder order(program);
    int last_ordered = -1;
    for (int i = 0; i < program.size(); ++i)
      if (FuseClusters::is_ordered(program.eqn(i)))
        order.keep_behind(std::exchange(last_ordered, i), i);
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < program.size(); ++i)
      if (order.is_ready(i)) ready.push(i);
    Rewriter made(draft);
    while (!ready.empty()) {
      const int i = ready.top();
      ready.pop();
      made.add(program.eqn(i));
      order.place(i, [&](int next, bool is_ready) {
        if (is_ready) ready.push(next);
      });
    }
    if (made.eqns().size() != draft.eqns.size()) {
      throw Error("fuse: equations wait for each other; please report the program");
    }
    return made.finish();
  }

  const Jaxpr& jaxpr_;
  FuseClusters clusters_;
};

}  // namespace

JaxprRef fuse(const Jaxpr& jaxpr) { return Fuser(jaxpr).run(); }

void register_pass_fuse() {
  register_pass({.order = PassOrder::fuse,
                 .name = "fuse",
                 .run = of_program<fuse>,
                 .runs_on = can_run_fused,
                 .merges = true});
}

}  // namespace shmap
