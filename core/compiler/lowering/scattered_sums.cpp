#include "core/compiler/lowering/scattered_sums.h"

#include <algorithm>
#include <vector>

#include "collectives/primitives.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// The number of the operand that is an array, for an operation that makes each element of its
// result from one element of that operand; -1 for other operations, and where several operands are
// arrays.
int only_array(const Eqn& e) {
  if (e.primitive == &transpose_p) return 0;
  if (!e.primitive->elementwise || e.out.size() != 1) return -1;
  int array = -1;
  for (std::size_t i = 0; i < e.in.size(); ++i) {
    if (e.in[i].is_literal()) continue;
    if (array >= 0 || !(e.in[i].type().dims() == e.out[0]->type.dims())) return -1;
    array = static_cast<int>(i);
  }
  return array;
}

// A psum, elementwise operations on its result alone, and the pscatter that ends them.
struct Chain {
  int sum;
  std::vector<int> between;  // in program order
  int part;
  int dim;  // the dim of the sum's result that the pscatter cuts
};

// The chain that ends with the pscatter `part`; sum is -1 where there is no such chain.
Chain chain_to(const ProgramIndex& program, int part) {
  const Eqn& last = program.eqn(part);
  const auto& params = params_as<ScatterParams>(*last.params);
  Chain chain{-1, {}, part, params.dimension};
  int user = part;
  Atom value = last.in[0];
  while (!value.is_literal() && program.only_user(value.var()) == user) {
    const int maker = program.maker(value);
    if (maker < 0) return chain;
    const Eqn& e = program.eqn(maker);
    if (e.primitive == &psum_p) {
      const auto& sum = params_as<AxesParams>(*e.params);
      // Another order of the axes would give the ranks other numbers.
      const bool same = sum.groups.empty() && params.groups.empty() && params.tiled &&
                        sum.axes.names() == params.axes.names() && !e.in[0].is_literal() &&
                        e.in[0].type().axes() == last.out[0]->type.axes();
      if (same) chain.sum = maker;
      return chain;
    }
    const int array = only_array(e);
    if (array < 0) return chain;
    if (e.primitive == &transpose_p) {
      const Dims& permutation = params_as<TransposeParams>(*e.params).permutation;
      chain.dim = static_cast<int>(permutation[static_cast<std::size_t>(chain.dim)]);
    }
    chain.between.insert(chain.between.begin(), maker);
    user = maker;
    value = e.in[static_cast<std::size_t>(array)];
  }
  return chain;
}

// The type of one of `ranks` parts along dim `dim` of a value of this type.
ShapedArray part_of(const ShapedArray& whole, int dim, int ranks, const AxisSet& axes) {
  Shape dims = whole.dims();
  dims[static_cast<std::size_t>(dim)] /= ranks;
  return ShapedArray(dims, whole.dtype(), whole.weak(), axes);
}

void write_chain(const ProgramIndex& program, const Chain& chain, Rewriter& made) {
  const Eqn& last = program.eqn(chain.part);
  const Eqn& sum = program.eqn(chain.sum);
  const AxisSet& axes = last.out[0]->type.axes();
  ScatterParams params = params_as<ScatterParams>(*last.params);
  params.dimension = chain.dim;
  int dim = chain.dim;
  const auto result = [&](std::size_t k, const ShapedArray& whole) {
    return k == chain.between.size() ? last.out[0]
                                     : make_ref<const Var>(part_of(whole, dim, params.ranks, axes));
  };
  VarRef value = result(0, sum.out[0]->type);
  Eqn scattered{
      &psum_scatter_p, sum.in, std::make_shared<ScatterParams>(params), {value}, sum.source};
  made.put(chain.sum, std::move(scattered));
  for (std::size_t k = 0; k < chain.between.size(); ++k) {
    Eqn e = program.eqn(chain.between[k]);
    e.in[static_cast<std::size_t>(only_array(e))] = Atom(value);
    if (e.primitive == &transpose_p) {
      const Dims& permutation = params_as<TransposeParams>(*e.params).permutation;
      for (std::size_t d = 0; d < permutation.size(); ++d) {
        if (permutation[d] != dim) continue;
        dim = static_cast<int>(d);
        break;
      }
    }
    value = result(k + 1, e.out[0]->type);
    e.out = {value};
    made.put(chain.between[k], std::move(e));
  }
  made.remove(chain.part);
}

}  // namespace

JaxprRef scatter_sums(const JaxprRef& blocks, LowerLog* log) {
  const bool any = std::any_of(blocks->eqns.begin(), blocks->eqns.end(),
                               [](const Eqn& e) { return e.primitive == &psum_p; });
  if (!any) return blocks;
  const ProgramIndex program(*blocks);
  Rewriter made(*blocks);
  for (int i = 0; i < program.size(); ++i) {
    if (program.eqn(i).primitive != &pscatter_p) continue;
    const Chain chain = chain_to(program, i);
    if (chain.sum < 0) continue;
    if (log) log->summed_in_parts(*program.eqn(chain.sum).out[0]);
    write_chain(program, chain, made);
  }
  return made.is_edited() ? made.finish() : blocks;
}

}  // namespace shmap
