#include "core/transforms/fusion/fuse.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ir/node.h"
#include "core/transforms/fusion/fuse_clusters.h"

namespace shmap {

namespace {

// The jaxpr in which clusters are equations.
class Fuser {
 public:
  explicit Fuser(const JaxprRef& jaxpr) : jaxpr_(jaxpr), clusters_(*jaxpr) {}

  JaxprRef run() {
    std::vector<Placed> placed;
    std::vector<bool> gone(eqns().size(), false);
    bool any = false;
    for (const FuseCluster& found : clusters_.all()) {
      if (found.merged_into >= 0 || found.ops < 2) continue;
      FuseCluster x = found;
      any = true;
      std::sort(x.members.begin(), x.members.end(),
                [](const FuseMember& a, const FuseMember& b) { return a.eqn < b.eqn; });
      placed.push_back({fused_equation(x), x.members.back().eqn});
      for (const FuseMember& m : x.members)
        if (!m.copy) gone[static_cast<std::size_t>(m.eqn)] = true;
    }
    if (!any) return jaxpr_;
    for (int i = 0; i < static_cast<int>(eqns().size()); ++i)
      if (!gone[static_cast<std::size_t>(i)]) placed.push_back({eqn(i), i});
    auto made = make_ref<Jaxpr>();
    made->binders = jaxpr_->binders;
    made->outs = jaxpr_->outs;
    made->env = jaxpr_->env;
    made->checks_variance = jaxpr_->checks_variance;
    made->eqns = in_order(without_unused_copies(std::move(placed)));
    check_pass(*made, "fuse");
    return made;
  }

 private:
  struct Placed {
    Eqn eqn;
    int position;
  };

  const std::vector<Eqn>& eqns() const { return jaxpr_->eqns; }
  const Eqn& eqn(int i) const { return eqns()[static_cast<std::size_t>(i)]; }
  const Var* result(int i) const { return eqn(i).out[0].get(); }

  Eqn fused_equation(const FuseCluster& x) {
    const std::int64_t rows = x.split ? x.space.rows : 1;
    const std::int64_t cols = x.split ? x.space.cols : x.space.elements();
    auto program = std::make_shared<FusedProgram>(rows, cols);
    VarMap<int> values;
    std::map<std::pair<const Var*, FusedKind>, int> operands;
    Eqn made;
    made.primitive = &fused_p;
    for (const FuseMember& m : x.members) values[result(m.eqn)] = -1;
    for (const FuseMember& m : x.members) {
      for (const Atom& a : eqn(m.eqn).in) {
        if (a.is_literal() || values.count(a.var())) continue;
        const FusedKind kind = clusters_.operand_kind(m, a);
        const auto [it, is_new] = operands.try_emplace({a.var(), kind}, 0);
        if (!is_new) continue;
        it->second = program->add_input(a.type().dtype(), kind);
        made.in.push_back(a);
      }
    }
    const auto value_of = [&](const Atom& a, FusedKind kind) {
      if (a.is_literal()) {
        const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
        return program->add_literal(literal.type.dtype(), literal.value);
      }
      const auto it = values.find(a.var());
      return it != values.end() ? it->second : operands.at({a.var(), kind});
    };
    for (const FuseMember& m : x.members) {
      const Eqn& e = eqn(m.eqn);
      std::vector<int> in;
      for (const Atom& a : e.in) in.push_back(value_of(a, clusters_.operand_kind(m, a)));
      int value = in[0];
      switch (clusters_.role(m.eqn)) {
        case FuseRole::map:
          value = program->add_map(*e.primitive, std::move(in), e.params);
          break;
        case FuseRole::draw:
          value = program->add_draw(*e.primitive, std::move(in), e.params);
          break;
        case FuseRole::reduce:
          value = program->add_reduce(*e.primitive, in[0]);
          break;
        case FuseRole::broadcast:
          // Of one row a reduced element is used as a scalar: already wider then.
          if (joint_kind(program->kind(in[0]), m.kind) == m.kind && program->kind(in[0]) != m.kind)
            value = program->add_broadcast(in[0], m.kind);
          break;
        default:
          break;
      }
      values[result(m.eqn)] = value;
      made.source = e.source;
    }
    // Full results first: one of them may take the memory of an operand.
    for (const FusedKind kind : {FusedKind::full, FusedKind::row}) {
      for (const FuseMember& m : x.members) {
        if (m.copy || m.kind != kind || clusters_.is_inner(m.eqn)) continue;
        int value = values[result(m.eqn)];
        if (program->kind(value) != kind) value = program->add_broadcast(value, kind);
        program->add_output(value, result(m.eqn)->type);
        made.out.push_back(eqn(m.eqn).out[0]);
      }
    }
    made.params = std::make_shared<FusedParams>(std::move(program));
    return made;
  }

  std::vector<Placed> without_unused_copies(std::vector<Placed> placed) const {
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.position < b.position; });
    std::unordered_map<const Var*, int> uses;
    for (const Placed& p : placed)
      for (const Atom& a : p.eqn.in)
        if (!a.is_literal()) ++uses[a.var()];
    std::vector<Placed> kept;
    for (std::size_t i = placed.size(); i-- > 0;) {
      Placed& p = placed[i];
      const bool is_copied = p.eqn.primitive != &fused_p && clusters_.is_copied(p.position);
      if (is_copied && !clusters_.is_result(p.eqn.out[0].get()) && uses[p.eqn.out[0].get()] == 0) {
        for (const Atom& a : p.eqn.in)
          if (!a.is_literal()) --uses[a.var()];
        continue;
      }
      kept.push_back(std::move(p));
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  // By what they need of each other; else where they, or the last of them, stood.
  std::vector<Eqn> in_order(std::vector<Placed> placed) const {
    std::unordered_map<const Var*, std::size_t> maker;
    for (std::size_t k = 0; k < placed.size(); ++k)
      for (const VarRef& v : placed[k].eqn.out) maker[v.get()] = k;
    std::vector<std::vector<std::size_t>> followers(placed.size());
    std::vector<int> missing(placed.size(), 0);
    const auto precede = [&](std::size_t a, std::size_t b) {
      followers[a].push_back(b);
      ++missing[b];
    };
    std::size_t last_ordered = placed.size();
    for (std::size_t k = 0; k < placed.size(); ++k) {
      for (const Atom& a : placed[k].eqn.in) {
        if (a.is_literal()) continue;
        if (const auto it = maker.find(a.var()); it != maker.end()) precede(it->second, k);
      }
      if (!FuseClusters::is_ordered(placed[k].eqn)) continue;
      if (last_ordered != placed.size()) precede(last_ordered, k);
      last_ordered = k;
    }
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t k = 0; k < placed.size(); ++k)
      if (missing[k] == 0) ready.push(k);
    std::vector<Eqn> out;
    while (!ready.empty()) {
      const std::size_t k = ready.top();
      ready.pop();
      out.push_back(placed[k].eqn);
      for (std::size_t f : followers[k])
        if (--missing[f] == 0) ready.push(f);
    }
    if (out.size() != placed.size()) {
      throw Error("fuse: equations wait for each other; please report the program");
    }
    return out;
  }

  const JaxprRef& jaxpr_;
  FuseClusters clusters_;
};

}  // namespace

JaxprRef fuse(const JaxprRef& jaxpr) { return Fuser(jaxpr).run(); }

}  // namespace shmap
