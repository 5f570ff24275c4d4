#include "core/compiler/fusion/fuse_gathers.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather_reduce.h"
#include "core/ops/reduce.h"
#include "core/ops/reduce_groups.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// The operands of one reduction must fit into a near cache.
constexpr std::int64_t kMostBytes = 64 * 1024;

bool same_variable(const Atom& a, const Atom& b) {
  return !a.is_literal() && !b.is_literal() && a.var() == b.var();
}

class GatherFuser {
 public:
  explicit GatherFuser(const Jaxpr& jaxpr)
      : program_(jaxpr), made_(jaxpr), reduced_(jaxpr.eqns.size(), false) {}

  JaxprRef run() {
    bool changed = false;
    for (int i = 0; i < program_.size(); ++i) {
      const int gather = reduced_gather(i);
      if (gather >= 0) reduced_[static_cast<std::size_t>(gather)] = true;
      changed = changed || gather >= 0 || index_of(program_.eqn(i));
    }
    if (!changed) return JaxprRef(&program_.jaxpr());
    made_.reserve(jaxpr_size());
    for (int i = 0; i < program_.size(); ++i) {
      if (reduced_[static_cast<std::size_t>(i)]) continue;
      const int gather = reduced_gather(i);
      Eqn e = gather >= 0 ? gather_reduce(program_.eqn(gather), program_.eqn(i)) : program_.eqn(i);
      if (gather >= 0 || index_of(e)) count_from_end(e);
      made_.add(std::move(e));
    }
    return made_.finish();
  }

 private:
  std::size_t jaxpr_size() const { return program_.jaxpr().eqns.size() + 4; }

  // ---- indices

  // The dim in which an index selects, if index vectors have one entry; -1 for longer index vectors
  // and for other equations.
  static std::int64_t indexed_dim(const Eqn& e) {
    const Dims* dims = nullptr;
    bool from_end = false;
    if (e.primitive == &gather_p || e.primitive == &gather_reduce_p) {
      const auto& p = e.primitive == &gather_p ? params_as<GatherParams>(*e.params)
                                               : params_as<GatherReduceParams>(*e.params).gather;
      dims = &p.start_index_map;
      from_end = p.from_end;
    } else if (is_scatter(*e.primitive)) {
      const auto& p = params_as<ScatterAddParams>(*e.params);
      dims = &p.scatter_dims_to_operand_dims;
      from_end = p.from_end;
    }
    return dims && !from_end && dims->size() == 1 ? (*dims)[0] : -1;
  }

  // The equation `i < 0 ? i + extent : i` that computes the indices, or null.
  const Eqn* wrapped(const Eqn& e) const {
    const std::int64_t dim = indexed_dim(e);
    if (dim < 0) return nullptr;
    const Eqn* moved = program_.made_by(e.in[1], reshape_p);
    const Eqn* chosen = program_.made_by(moved ? moved->in[0] : e.in[1], select_n_p);
    if (!chosen || chosen->in.size() != 3 || chosen->in[1].is_literal()) return nullptr;
    const Atom& index = chosen->in[1];
    const Eqn* negative = program_.made_by(chosen->in[0], lt_p);
    const Eqn* from_end = program_.made_by(chosen->in[2], add_p);
    if (!negative || !from_end || !same_variable(negative->in[0], index) ||
        !same_variable(from_end->in[0], index) || !is_signed_int(index.type().dtype()))
      return nullptr;
    double zero = 1, extent = -1;
    if (!literal_number(negative->in[1], &zero) || !literal_number(from_end->in[1], &extent) ||
        zero != 0 ||
        extent != static_cast<double>(e.in[0].type().dims()[static_cast<std::size_t>(dim)]))
      return nullptr;
    return chosen;
  }
  bool index_of(const Eqn& e) const { return wrapped(e) != nullptr; }

  // Makes `e` read the original indices, and count negative indices from the end itself.
  void count_from_end(Eqn& e) {
    const Eqn* chosen = wrapped(e);
    if (!chosen) return;
    const Atom& index = chosen->in[1];
    if (const Eqn* moved = program_.made_by(e.in[1], reshape_p)) {
      const VarRef vectors = make_ref<const Var>(ShapedArray(
          e.in[1].type().dims(), index.type().dtype(), index.type().weak(), index.type().axes()));
      made_.add({&reshape_p, {index}, moved->params, {vectors}, moved->source});
      e.in[1] = Atom(vectors);
    } else {
      e.in[1] = index;
    }
    const auto changed = [](auto params, auto change) {
      auto mine = std::make_shared<decltype(params)>(std::move(params));
      change(*mine);
      return std::shared_ptr<const Params>(std::move(mine));
    };
    if (e.primitive == &gather_p)
      e.params = changed(params_as<GatherParams>(*e.params), [](auto& p) { p.from_end = true; });
    else if (e.primitive == &gather_reduce_p)
      e.params = changed(params_as<GatherReduceParams>(*e.params),
                         [](auto& p) { p.gather.from_end = true; });
    else
      e.params =
          changed(params_as<ScatterAddParams>(*e.params), [](auto& p) { p.from_end = true; });
  }

  // ---- reductions

  // The gather of equation i's operand, if i is a reduction, the gather's only reader, and reduces
  // whole slices; otherwise -1.
  int reduced_gather(int i) const {
    const Eqn& e = program_.eqn(i);
    if (e.in.empty() || e.in[0].is_literal() || !e.primitive->reduction) return -1;
    const ShapedArray& type = e.in[0].type();
    const int gather = program_.maker(e.in[0]);
    if (gather < 0 || program_.eqn(gather).primitive != &gather_p ||
        program_.only_user(e.in[0].var()) != i || type.size() == 0)
      return -1;
    const auto& p = params_as<GatherParams>(*program_.eqn(gather).params);
    const auto batch_rank = type.rank() - static_cast<int>(p.offset_dims.size());
    std::int64_t slices = 1;
    for (int d = 0; d < batch_rank; ++d) slices *= type.dims()[static_cast<std::size_t>(d)];
    for (std::size_t k = 0; k < p.offset_dims.size(); ++k)
      if (p.offset_dims[k] != batch_rank + static_cast<int>(k)) return -1;
    const ReduceGroups groups(type.dims(), params_as<ReduceParams>(*e.params).axes);
    const bool fits = groups.count == 1 && groups.kept[0] > 1 && slices % groups.kept[0] == 0 &&
                      groups.reduced[0] * groups.kept[1] * itemsize(type.dtype()) <= kMostBytes &&
                      program_.eqn(gather).out[0]->type.axes() == e.out[0]->type.axes();
    return fits ? gather : -1;
  }

  static Eqn gather_reduce(const Eqn& gather, const Eqn& reduction) {
    Eqn e = gather;
    e.primitive = &gather_reduce_p;
    e.params = std::make_shared<GatherReduceParams>(
        params_as<GatherParams>(*gather.params), reduction.primitive,
        params_as<ReduceParams>(*reduction.params).axes, gather.out[0]->type.with_axes(AxisSet()),
        reduction.out[0]->type.with_axes(AxisSet()));
    e.out = reduction.out;
    e.source = reduction.source;
    return e;
  }

  const ProgramIndex program_;
  Rewriter made_;
  std::vector<bool> reduced_;  // gathers that became part of a reduction
};

}  // namespace

JaxprRef fuse_gathers(const Jaxpr& jaxpr) { return GatherFuser(jaxpr).run(); }

void register_pass_fuse_gathers() {
  register_pass({.order = PassOrder::fuse_gathers,
                 .name = "fuse_gathers",
                 .run = of_program<fuse_gathers>,
                 .makes = &gather_reduce_p,
                 .simplified_after = true,
                 .merges = true});
}

}  // namespace shmap
