#include "core/transforms/autodiff/custom_batch.h"

#include "core/array/tree_paths.h"
#include "core/ops/reduce.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/transforms/autodiff/derived.h"

namespace shmap {

using detail::BodyRef;
using detail::FlatTree;
using detail::ForwardCode;
using detail::RuleCode;
using detail::TreeNode;

BatchedLeaves split_batched(BatchTrace& trace, std::vector<Array> leaves) {
  BatchedLeaves out;
  TraceScope scope(trace.parent());
  for (Array& x : leaves) {
    auto [values, dim] = trace.split(x);
    out.batched.push_back(dim >= 0);
    out.leaves.push_back(dim < 0 ? std::move(values)
                                 : with_batch_dim(values, dim, 0, trace.size(), SourceLine{}));
  }
  return out;
}

void BatchedBody::operator()(std::vector<Array>& leaves, FlatTree& result) const {
  Batch args;
  args.values = std::move(leaves);
  leaves.clear();
  for (const bool is_batched : batched_) args.dims.push_back(is_batched ? 0 : -1);
  Batch outs = batch_of(f_, std::move(args), size_, result, {}, tag_);
  for (std::size_t o = 0; o < outs.values.size(); ++o)
    result.leaves.push_back(with_batch_dim(outs.values[o], outs.dims[o], 0, size_, SourceLine{}));
}

namespace {

struct BatchedJvpRule {
  RuleCode rule;
  std::vector<bool> batched;  // of primals, and of their tangents
  std::int64_t size;

  static void call(void* object, std::vector<Array>& leaves, FlatTree& result, void* like) {
    auto& self = *static_cast<BatchedJvpRule*>(object);
    auto one = [&](std::vector<Array>& in, FlatTree& out) {
      self.rule.call(self.rule.object.get(), in, out, like);
    };
    BatchedBody(BodyRef(one), self.batched, self.size)(leaves, result);
  }
};

// Appends to `out` the entries of `batched` for the leaves that `given` has. `batched` has an entry
// for each leaf of `wanted`, of which subtrees may be absent in `given`.
void present(const TreeNode& given, const TreeNode& wanted, const std::vector<bool>& batched,
             std::size_t& next, std::vector<bool>& out) {
  if (given.kind == TreeNode::absent || given.children.size() != wanted.children.size()) {
    next += leaf_paths(wanted, "").size();
    return;
  }
  if (wanted.kind == TreeNode::leaf) out.push_back(batched[next++]);
  for (std::size_t i = 0; i < wanted.children.size(); ++i)
    present(given.children[i], wanted.children[i], batched, next, out);
}

// The cotangent of an argument that all examples have in common, from those of the examples.
Array over_batch(const Array& cotangents) {
  const ShapedArray type = node_of(cotangents)->type;
  if (is_differentiable(type.dtype())) return reduce(reduce_sum_p, cotangents, Dims{0}, false, {});
  // Bools and keys have no sums; a cotangent that is not floating stands for zero in any case.
  Shape one;
  for (int d = 1; d < type.rank(); ++d) one.push_back(type.dims()[static_cast<std::size_t>(d)]);
  if (type.dims()[0] == 0)
    return zeros_of(ShapedArray(one, type.dtype(), type.weak(), type.axes()), {});
  return bind_reshape(slice_dim(cotangents, 0, 0, 1, {}), one, {});
}

struct BatchedBackward {
  RuleCode rule;
  std::vector<bool> batched;  // of the function's arguments
  TreeNode arguments;
  std::int64_t size;

  static void call(void* object, std::vector<Array>& leaves, FlatTree& result, void*) {
    auto& self = *static_cast<BatchedBackward*>(object);
    auto one = [&](std::vector<Array>& in, FlatTree& out) {
      self.rule.call(self.rule.object.get(), in, out, nullptr);
    };
    const std::vector<bool> all(leaves.size(), true);
    BatchedBody(BodyRef(one), all, self.size)(leaves, result);
    // The cotangent of an argument that is not batched is the sum over the batch.
    std::vector<bool> is_batched;
    std::size_t next = 0;
    present(result.node, self.arguments, self.batched, next, is_batched);
    for (std::size_t i = 0; i < is_batched.size() && i < result.leaves.size(); ++i)
      if (!is_batched[i]) result.leaves[i] = over_batch(result.leaves[i]);
  }
};

struct BatchedForward {
  ForwardCode rule;
  std::vector<bool> batched;
  TreeNode arguments;
  std::int64_t size;

  static RuleCode call(void* object, std::vector<Array>& leaves, FlatTree& result, void* like) {
    auto& self = *static_cast<BatchedForward*>(object);
    RuleCode backward;
    auto one = [&](std::vector<Array>& in, FlatTree& out) {
      backward = self.rule.call(self.rule.object.get(), in, out, like);
    };
    BatchedBody(BodyRef(one), self.batched, self.size)(leaves, result);
    auto made = std::make_shared<BatchedBackward>(
        BatchedBackward{std::move(backward), self.batched, self.arguments, self.size});
    return {std::move(made), BatchedBackward::call};
  }
};

}  // namespace

RuleCode batched_jvp_rule(RuleCode rule, std::vector<bool> batched, std::int64_t size) {
  const std::vector<bool> primals = batched;
  batched.insert(batched.end(), primals.begin(), primals.end());
  return {
      std::make_shared<BatchedJvpRule>(BatchedJvpRule{std::move(rule), std::move(batched), size}),
      BatchedJvpRule::call};
}

ForwardCode batched_vjp_rule(ForwardCode rule, std::vector<bool> batched, TreeNode arguments,
                             std::int64_t size) {
  return {std::make_shared<BatchedForward>(
              BatchedForward{std::move(rule), std::move(batched), std::move(arguments), size}),
          BatchedForward::call};
}

BatchedCall batch_called(BatchCall& call, const JaxprRef& jaxpr, std::size_t num_consts) {
  std::vector<bool> batched;
  for (std::size_t i = 0; i < call.in.size(); ++i) batched.push_back(call.is_batched(i));
  BatchedProgram program =
      *derived_batch(jaxpr, call.size, batched, std::vector<bool>(jaxpr->outs.size(), true));
  BatchedCall out;
  out.jaxpr = std::move(program.jaxpr);
  out.num_consts = static_cast<int>(program.consts.size() + num_consts);
  out.operands = std::move(program.consts);
  for (std::size_t i = 0; i < call.in.size(); ++i)
    out.operands.push_back(batched[i] ? with_batch_dim(call, i, 0) : call.in[i]);
  out.batched.assign(batched.begin() + static_cast<std::ptrdiff_t>(num_consts), batched.end());
  return out;
}

}  // namespace shmap
