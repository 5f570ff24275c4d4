#include "core/compiler/fusion/add_into_products.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/compiler/fusion/unfilled.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ir/types_of.h"
#include "core/ops/elementwise.h"
#include "core/ops/product.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

// The term is copied to the result, to which the product is then added. That passes over memory as
// often as a separate addition does, so it gains where the result stays in a near cache.
constexpr std::int64_t kMostSumBytes = 512 * 1024;

class ProductAdder {
 public:
  ProductAdder(const Jaxpr& jaxpr, DeviceKind kind)
      : program_(jaxpr), kernel_(dot_general_p.kernel(kind)), made_(jaxpr) {}

  JaxprRef run() {
    // From the last product to the first: of two products whose results are added, the later one
    // adds to the result of the earlier one.
    for (int i = program_.size(); i-- > 0;)
      if (program_.eqn(i).primitive == &dot_general_p) merge(i);
    return made_.is_edited() ? made_.finish() : JaxprRef(&program_.jaxpr());
  }

 private:
  void merge(int i) {
    const Eqn& dot = program_.eqn(i);
    const Var* product = dot.out[0].get();
    const int user = program_.only_user(product);
    if (user < 0 || made_.is_gone(user) || program_.eqn(user).primitive != &add_p) return;
    const Eqn& sum = program_.eqn(user);
    const Atom& term = sum.in[!sum.in[0].is_literal() && sum.in[0].var() == product ? 1 : 0];
    if (term.is_literal() || !is_in_time(dot, term) || !adds(dot, term)) return;
    ProductParams params;
    params.dot = params_as<DotParams>(*dot.params);
    params.adds = true;
    Eqn into;
    into.primitive = &product_into_p;
    into.in = {dot.in[0], dot.in[1], term};
    into.out = sum.out;
    into.source = dot.source;
    if (!makes_its_type(into, params, program_.jaxpr().env)) return;
    into.params = std::make_shared<ProductParams>(std::move(params));
    made_.remove(i);
    made_.put(user, std::move(into));
  }

  // Whether the product can read the term without waiting for more collectives than it does.
  bool is_in_time(const Eqn& dot, const Atom& term) const {
    return program_.depth(term) <= std::max(program_.depth(dot.in[0]), program_.depth(dot.in[1]));
  }

  bool adds(const Eqn& dot, const Atom& term) const {
    const ShapedArray& type = dot.out[0]->type;
    if (term.type().dtype() != type.dtype() || !(term.type().dims() == type.dims()) ||
        type.size() == 0 || type.nbytes() > kMostSumBytes || dot.in[0].is_literal() ||
        dot.in[1].is_literal())
      return false;
    const std::vector<ShapedArray> in = types_of(dot.in);
    return kernel_.accumulates({{}, {}, in, {&type, 1}, *dot.params});
  }

  const ProgramIndex program_;
  const Kernel& kernel_;
  Rewriter made_;
};

}  // namespace

JaxprRef add_into_products(const Jaxpr& jaxpr, DeviceKind kind) {
  return ProductAdder(jaxpr, kind).run();
}

void register_pass_add_into_products() {
  register_pass(
      {.order = PassOrder::add_into_products,
       .name = "add_into_products",
       .run = [](const Jaxpr& jaxpr,
                 const PassContext& context) { return add_into_products(jaxpr, context.kind()); },
       .makes = &product_into_p,
       .runs_on = [](DeviceKind kind) { return dot_general_p.kernel(kind).accumulates != nullptr; },
       .merges = true});
}

}  // namespace shmap
