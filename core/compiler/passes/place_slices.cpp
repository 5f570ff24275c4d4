#include "core/compiler/passes/place_slices.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/compiler/passes/dead_code.h"
#include "core/compiler/passes/known_scalars.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/placed_slice.h"
#include "core/ops/product.h"
#include "core/ops/slicing.h"

namespace shmap {

namespace {

class SlicePlacer {
 public:
  SlicePlacer(const Jaxpr& jaxpr, const detail::MeshImpl& mesh)
      : jaxpr_(jaxpr), program_(jaxpr), scalars_(jaxpr, mesh), made_(jaxpr) {}

  JaxprRef run() {
    for (int i = 0; i < program_.size(); ++i)
      if (program_.eqn(i).primitive == &dynamic_slice_p) place(i);
    if (!made_.is_edited()) return JaxprRef(&jaxpr_);
    return remove_dead_code(*made_.finish());  // removes the equations that computed the starts
  }

 private:
  void place(int i) {
    const Eqn& e = program_.eqn(i);
    const ShapedArray& type = e.out[0]->type;
    if (type.size() == 0 || e.in[0].is_literal() || !(type.axes() == e.in[0].type().axes()) ||
        !is_contiguous_part(e.in[0].type().dims(), type.dims()) ||
        program_.is_result(e.out[0].get()) || !is_kept(e.in[0]))
      return;
    PlacedSliceParams params;
    params.sizes = type.dims();
    params.offsets =
        scalars_.offsets_of_part(e.in[0].type().dims(), type.dims(), std::span(e.in).subspan(1));
    if (params.offsets.empty()) return;
    Eqn placed = e;
    placed.primitive = &placed_slice_p;
    placed.params = std::make_shared<PlacedSliceParams>(std::move(params));
    placed.in = {e.in[0]};
    made_.put(i, std::move(placed));
  }

  // Whether `a` is an argument that no equation may overwrite.
  bool is_kept(const Atom& a) const {
    const std::span<const int> users = program_.users(a.var());
    return program_.maker(a) < 0 && std::none_of(users.begin(), users.end(), [&](int user) {
             return program_.eqn(user).primitive->in_place;
           });
  }

  const Jaxpr& jaxpr_;
  const ProgramIndex program_;
  const KnownScalars scalars_;
  Rewriter made_;
};

}  // namespace

JaxprRef place_slices(const Jaxpr& jaxpr, const detail::MeshImpl& mesh) {
  const bool any = std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(),
                               [](const Eqn& e) { return e.primitive == &dynamic_slice_p; });
  return any && mesh.fully_addressable() ? SlicePlacer(jaxpr, mesh).run() : JaxprRef(&jaxpr);
}

void register_pass_place_slices() {
  register_pass({.order = PassOrder::place_slices,
                 .name = "place_slices",
                 .run = [](const Jaxpr& jaxpr, const PassContext& context) {
                   return place_slices(jaxpr, context.mesh);
                 }});
}

}  // namespace shmap
