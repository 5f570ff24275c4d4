#include "core/transforms/vmap/batch.h"

#include "core/base/inline_vector.h"
#include "core/tracing/jaxpr_body.h"

namespace shmap {

namespace {

ShapedArray element_of(const ShapedArray& batched, int dim) {
  Shape shape;
  for (int d = 0; d < batched.rank(); ++d)
    if (d != dim) shape.push_back(batched.dims()[static_cast<std::size_t>(d)]);
  return ShapedArray(shape, batched.dtype(), batched.weak(), batched.axes());
}

ShapedArray batched_type(const ShapedArray& element, std::int64_t size) {
  return ShapedArray(with_extent(element.dims(), 0, size), element.dtype(), element.weak(),
                     element.axes());
}

// The types of an operation's results for one element of the batch, so that errors speak of types
// that the caller knows.
void infer_elements(const Primitive& primitive, Types in, const Params& params,
                    std::span<ShapedArray> out, SourceLine source) {
  try {
    primitive.abstract_eval(in, params, out);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line(source));
  }
}

}  // namespace

BatchTrace::BatchTrace(Trace& parent, std::int64_t size, std::uint64_t tag, SourceLine made)
    : Trace("vmap", made), parent_(parent), size_(size), tag_(tag ? tag : id()) {}

std::pair<Array, int> BatchTrace::split(const Array& x) const {
  const Node* node = node_of(x);
  if (node && node->kind == NodeKind::batched && node->trace == tag_) {
    const auto& batched = static_cast<const BatchedNode&>(*node);
    return {batched.values, batched.dim};
  }
  return {x, -1};
}

Array BatchTrace::wrap(Array values, int dim) const {
  if (dim < 0) return values;
  const ShapedArray element = element_of(node_of(values)->type, dim);
  return Array::first(new BatchedNode(element, tag_, std::move(values), dim));
}

Array BatchTrace::vary(const Array& x, const AxisSet& axes, SourceLine source) {
  const auto [values, dim] = split(x);
  return wrap(parent_.vary(values, axes, source), dim);
}

void BatchTrace::process(const Primitive& primitive, std::span<Array> in, const Params& params,
                         std::span<Array> out, SourceLine source) {
  // The batching rules of the library insert casts themselves. Where the user has to write casts, a
  // missing cast must therefore be refused before the rule is called.
  if (axis_env() && checks_variance() && !casts() && !primitive.variance && !primitive.group)
    require_equal_variance(primitive.name, in, source);
  InlineVector<Array, 4> values(in.size());
  InlineVector<int, 4> dims(in.size());
  InlineVector<ShapedArray, 4> types(in.size());
  bool active = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    types[i] = checked_node(in[i], primitive.name, source).type;
    std::tie(values[i], dims[i]) = split(in[i]);
    active = active || dims[i] >= 0;
    in[i] = Array();  // releases this trace's reference, so that a donated operand has a sole owner
  }
  if (!active) {
    TraceScope scope(parent_);
    return parent_.process(primitive, values.span(), params, out, source);
  }
  if (!primitive.batching) {
    throw TypeError(std::string(primitive.name) +
                    " cannot be mapped by vmap: " + primitive.batching.reason() +
                    ". Call it outside of the mapped function, or on arguments without a batch dim "
                    "(in_axes none)" +
                    at_line(source));
  }
  InlineVector<ShapedArray, 2> wanted(out.size());
  infer_elements(primitive, types.span(), params, wanted, source);
  InlineVector<Array, 2> results(out.size());
  InlineVector<int, 2> out_dims(out.size());
  for (int& d : out_dims) d = 0;
  BatchCall call{primitive, params,         values.span(),   dims.span(),
                 size_,     results.span(), out_dims.span(), source};
  {
    TraceScope scope(parent_);
    LibraryScope library;
    primitive.batching.get()(call);
  }
  for (std::size_t o = 0; o < out.size(); ++o) {
    // Another type than that of abstract_eval is a fault of the rule.
    const ShapedArray& given = node_of(results[o])->type;
    const int dim = out_dims[o];
    const ShapedArray element = dim < 0 ? given : element_of(given, dim);
    const bool fits =
        dim < 0 || (dim < given.rank() && given.dims()[static_cast<std::size_t>(dim)] == size_);
    if (!fits || element.dtype() != wanted[o].dtype() || !(element.dims() == wanted[o].dims())) {
      throw Error("vmap of " + std::string(primitive.name) + ": result " + std::to_string(o) +
                  " of type " + to_string(wanted[o]) + " is given as " + to_string(given) +
                  " with " + std::to_string(size_) + " along dim " + std::to_string(dim) +
                  at_line(source));
    }
    out[o] = wrap(std::move(results[o]), dim);
    if (dim >= 0) node_of(out[o])->origin = {primitive.name, source};
  }
}

Batch batch_of(detail::BodyRef f, Batch args, std::int64_t size, detail::FlatTree& result,
               SourceLine source, std::uint64_t tag) {
  ensure_started();
  BatchTrace trace(current_trace(), size, tag, source);
  std::vector<Array> leaves;
  for (std::size_t i = 0; i < args.values.size(); ++i)
    leaves.push_back(trace.wrap(std::move(args.values[i]), args.dims[i]));
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (args.dims[i] >= 0) node_of(leaves[i])->origin.op = kArgument;
  {
    TraceScope scope(trace);
    f(leaves, result);
    leaves.clear();
  }
  Batch out;
  for (Array& leaf : result.leaves) {
    checked_node(leaf, "vmap: a result", source);
    auto [values, dim] = trace.split(leaf);
    out.values.push_back(std::move(values));
    out.dims.push_back(dim);
  }
  result.leaves.clear();
  return out;
}

BatchedProgram batch_program(const Jaxpr& jaxpr, std::int64_t size,
                             const std::vector<bool>& batched, const std::vector<bool>& wanted,
                             Types as) {
  JaxprTrace trace("vmap", jaxpr);
  Batch args;
  for (std::size_t i = 0; i < jaxpr.binders.size(); ++i) {
    const ShapedArray& type = jaxpr.binders[i]->type;
    args.values.push_back(trace.argument(batched[i] ? batched_type(type, size) : type));
    args.dims.push_back(batched[i] ? 0 : -1);
  }
  TraceScope scope(trace);
  JaxprBody body(jaxpr, {});
  detail::FlatTree result;
  Batch outs = batch_of(detail::BodyRef(body), std::move(args), size, result, {});
  BatchedProgram program;
  for (std::size_t o = 0; o < outs.values.size(); ++o) {
    Array& x = outs.values[o];
    program.batched_out.push_back(outs.dims[o] >= 0 || (!wanted.empty() && wanted[o]));
    if (program.batched_out.back()) x = with_batch_dim(x, outs.dims[o], 0, size, {});
    if (o < as.size()) x = trace.vary(x, as[o].axes(), {});
  }
  Traced traced = trace.build(outs.values, "vmap", {});
  program.jaxpr = std::move(traced.jaxpr);
  program.consts = std::move(traced.consts);
  return program;
}

}  // namespace shmap
