#include "core/compiler/fusion/join_slices.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/concatenate_slices.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

SliceParams whole_of(const Shape& shape) {
  SliceParams all;
  for (const std::int64_t extent : shape) {
    all.start_indices.push_back(0);
    all.limit_indices.push_back(extent);
    all.strides.push_back(1);
  }
  return all;
}

class SliceJoiner {
 public:
  explicit SliceJoiner(const Jaxpr& jaxpr) : program_(jaxpr), made_(jaxpr) {}

  JaxprRef run() {
    for (int i = 0; i < program_.size(); ++i)
      if (program_.eqn(i).primitive == &concatenate_p) join(i);
    return made_.is_edited() ? made_.finish() : JaxprRef(&program_.jaxpr());
  }

 private:
  // The slice that makes `a`, if it copies data and `a` is read only once; otherwise null.
  const Eqn* slice_of(const Atom& a) const {
    const Eqn* const e = program_.made_by(a, slice_p);
    if (!e || e->in[0].is_literal() || program_.reads(a.var()) != 1 ||
        slice_p.view(e->in[0].type(), *e->params, e->out[0]->type) >= 0)
      return nullptr;
    return e;
  }

  void join(int concatenation) {
    Eqn e = program_.eqn(concatenation);
    std::vector<SliceParams> slices;
    std::vector<Atom> arrays;
    std::vector<int> joined;
    for (const Atom& a : e.in) {
      if (a.is_literal()) return;
      if (a.type().size() == 0) continue;
      if (const Eqn* const slice = slice_of(a)) {
        joined.push_back(program_.maker(a));
        slices.push_back(params_as<SliceParams>(*slice->params));
        arrays.push_back(slice->in[0]);
      } else {
        slices.push_back(whole_of(a.type().dims()));
        arrays.push_back(a);
      }
    }
    if (joined.empty()) return;
    e.params = std::make_shared<ConcatenateSlicesParams>(
        params_as<ConcatenateParams>(*e.params).dimension, std::move(slices),
        e.out[0]->type.with_axes(AxisSet()));
    e.primitive = &concatenate_slices_p;
    e.in = std::move(arrays);
    made_.put(concatenation, std::move(e));
    for (const int i : joined) made_.remove(i);
  }

  const ProgramIndex program_;
  Rewriter made_;
};

}  // namespace

JaxprRef join_slices(const Jaxpr& jaxpr) { return SliceJoiner(jaxpr).run(); }

void register_pass_join_slices() {
  register_pass({.order = PassOrder::join_slices,
                 .name = "join_slices",
                 .run = of_program<join_slices>,
                 .makes = &concatenate_slices_p,
                 .merges = true});
}

}  // namespace shmap
