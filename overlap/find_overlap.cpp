// A pass that replaces a matrix product and its collective by an overlapped product, whose
// operations communicate while they multiply. Two patterns are found:
//
//   gather   a dot_general, one operand of which is an all_gather (or an all_gather_invariant),
//            tiled and over all ranks, that nothing else reads; casts may be between the two
//   scatter  a psum_scatter, tiled and over all ranks, of a dot_general that nothing else reads, or
//            of a transposition of one
//
// A match is replaced where the model (overlap/model.h) says that an overlapped form is faster.
// SHMAP_FIND_OVERLAP=0 turns the pass off.

#include <algorithm>
#include <optional>

#include "collectives/primitives.h"
#include "core/base/env.h"
#include "core/compiler/passes/dead_code.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/dot.h"
#include "core/ops/shape_params.h"
#include "core/tracing/make_jaxpr.h"
#include "overlap/overlap.h"

namespace shmap {

namespace {

// One product with its collective.
struct Match {
  OverlapSpec spec;
  Atom a, b;  // operands of the product; a gathered one is a device's own block
};

// A dot_general as an einsum with a letter for each dim; nothing if 26 letters are too few, or if
// the einsum cannot express it (a literal operand, another dtype of the result).
std::optional<OverlapSpec> einsum_of(const Eqn& dot) {
  const auto& p = params_as<DotParams>(*dot.params);
  const DType dtype = dot.in[0].type().dtype();
  if (p.preferred_element_type && *p.preferred_element_type != dtype) return std::nullopt;
  const int ranks[] = {dot.in[0].type().rank(), dot.in[1].type().rank()};
  if (dot.in[0].is_literal() || dot.in[1].is_literal() || ranks[0] + ranks[1] > 26)
    return std::nullopt;
  OverlapSpec spec;
  char next = 'a';
  spec.a.assign(static_cast<std::size_t>(ranks[0]), ' ');
  spec.b.assign(static_cast<std::size_t>(ranks[1]), ' ');
  const auto name = [](std::string& of, std::int64_t d) -> char& {
    return of[static_cast<std::size_t>(d)];
  };
  for (std::size_t i = 0; i < p.lhs_batch.size(); ++i, ++next) {
    name(spec.a, p.lhs_batch[i]) = name(spec.b, p.rhs_batch[i]) = next;
    spec.out += next;
  }
  for (std::size_t i = 0; i < p.lhs_contracting.size(); ++i, ++next)
    name(spec.a, p.lhs_contracting[i]) = name(spec.b, p.rhs_contracting[i]) = next;
  for (std::string* of : {&spec.a, &spec.b}) {
    for (char& l : *of) {
      if (l != ' ') continue;
      spec.out += l = next++;
    }
  }
  return spec;
}

class Finder {
 public:
  explicit Finder(const Jaxpr& jaxpr) : jaxpr_(jaxpr), uses_(jaxpr), made_(jaxpr) {}

  JaxprRef run() {
    bool any = false;
    for (const Eqn& e : jaxpr_.eqns) {
      std::optional<Match> match;
      if (e.primitive == &dot_general_p) match = match_gather(e);
      if (e.primitive == &psum_scatter_p) match = match_scatter(e);
      if (match && replace(*match, e)) {
        any = true;
      } else {
        made_.keep(e);
      }
    }
    return any ? remove_dead_code(*made_.finish()) : JaxprRef(&jaxpr_);
  }

 private:
  std::optional<Match> match_gather(const Eqn& dot) const {
    for (int operand = 0; operand < 2; ++operand) {
      const Atom* from = &dot.in[static_cast<std::size_t>(operand)];
      const Eqn* e = uses_.made_by(*from);
      while (e && e->primitive == &pbroadcast_p && uses_.only_user(from->var()) >= 0) {
        from = &e->in[0];
        e = uses_.made_by(*from);
      }
      if (!e || e->primitive->traffic != Traffic::gather || uses_.only_user(from->var()) < 0)
        continue;
      const auto& p = params_as<AllGatherParams>(*e->params);
      auto spec = einsum_of(dot);
      if (!p.tiled || !p.groups.empty() || e->in[0].is_literal() || !spec) continue;
      spec->kind = OverlapKind::gather;
      spec->operand = operand;
      spec->part = spec->labels(operand)[static_cast<std::size_t>(p.dimension)];
      spec->axes = p.axes;
      spec->ranks = p.ranks;
      const Atom &a = operand == 0 ? e->in[0] : dot.in[0], &b = operand == 0 ? dot.in[1] : e->in[0];
      return Match{*std::move(spec), a, b};
    }
    return std::nullopt;
  }

  std::optional<Match> match_scatter(const Eqn& scatter) const {
    const auto& p = params_as<ScatterParams>(*scatter.params);
    const Atom* from = &scatter.in[0];
    const Eqn* e = uses_.made_by(*from);
    Dims order;
    while (e && uses_.only_user(from->var()) >= 0 &&
           (e->primitive == &pbroadcast_p || (e->primitive == &transpose_p && order.empty()))) {
      if (e->primitive == &transpose_p) order = params_as<TransposeParams>(*e->params).permutation;
      from = &e->in[0];
      e = uses_.made_by(*from);
    }
    if (!e || e->primitive != &dot_general_p || uses_.only_user(from->var()) < 0 || !p.tiled ||
        !p.groups.empty())
      return std::nullopt;
    auto spec = einsum_of(*e);
    if (!spec) return std::nullopt;
    if (!order.empty()) {
      const std::string out = spec->out;
      for (std::size_t d = 0; d < order.size(); ++d)
        spec->out[d] = out[static_cast<std::size_t>(order[d])];
    }
    spec->kind = OverlapKind::scatter;
    spec->part = spec->out[static_cast<std::size_t>(p.dimension)];
    spec->axes = p.axes;
    spec->ranks = p.ranks;
    return Match{*std::move(spec), e->in[0], e->in[1]};
  }

  // Writes the operations of the form that the model chooses in place of `last`, the match's last
  // equation. False where the model chooses none, or the types would differ.
  bool replace(const Match& match, const Eqn& last) {
    const OverlapSpec& spec = match.spec;
    const Overlap form = choose_overlap(spec, match.a.type(), match.b.type()).form;
    if (form == Overlap::none) return false;
    JaxprTrace trace("jit", jaxpr_);
    Array a = trace.argument(match.a.type()), b = trace.argument(match.b.type());
    Traced traced;
    {
      TraceScope scope(trace);
      const LibraryScope library;
      const ShapedArray& wanted = last.out[0]->type;
      if (jaxpr_.checks_variance) {
        const AxisSet all =
            match.a.type().axes() | match.b.type().axes() | AxisSet(jaxpr_.env, mask_of(spec.axes));
        a = trace.vary(a, all, last.source);
        b = trace.vary(b, all, last.source);
      }
      Array y = overlapped_ops(spec, form, a, b, last.source);
      const AxisSet more = node_of(y)->type.axes() - wanted.axes();
      if (!more.empty())
        y = bind(assume_equal_p, std::move(y), AxesParams(Axes(more.names())), last.source);
      if (!(node_of(y)->type.axes() == wanted.axes()) || node_of(y)->type.dtype() != wanted.dtype())
        return false;
      Array outs[] = {std::move(y)};
      traced = trace.build(outs, "find_overlap", last.source);
    }
    if (!traced.consts.empty()) return false;
    const Atom operands[] = {made_.now(match.a), made_.now(match.b)};
    made_.become(last.out[0].get(),
                 made_.write_out(*traced.jaxpr, operands, Rewriter::Vars::own)[0]);
    return true;
  }

  std::uint32_t mask_of(const Axes& axes) const {
    std::uint32_t mask = 0;
    for (const std::string& name : axes) mask |= 1u << jaxpr_.env->find(name);
    return mask;
  }

  const Jaxpr& jaxpr_;
  const ProgramIndex uses_;
  Rewriter made_;
};

JaxprRef find_overlap(const Jaxpr& jaxpr, const PassContext&) {
  if (!jaxpr.env || !env::flag(env::Var::find_overlap)) return JaxprRef(&jaxpr);
  const bool any = std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), [](const Eqn& e) {
    return e.primitive->traffic == Traffic::gather || e.primitive == &psum_scatter_p;
  });
  return any ? Finder(jaxpr).run() : JaxprRef(&jaxpr);
}

}  // namespace

void register_pass_find_overlap() {
  register_pass({.order = PassOrder::find_overlap,
                 .name = "find_overlap",
                 .run = find_overlap,
                 .simplified_after = true});
}

}  // namespace shmap
