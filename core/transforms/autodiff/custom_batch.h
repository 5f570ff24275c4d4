// Functions with derivative rules of their own under vmap: the function and its rules, each
// batched.
#pragma once
#include <vector>

#include "core/transforms/vmap/batch.h"
#include "shmap/custom_rules.h"

namespace shmap {

// Values of a BatchTrace as arrays of its parent; the first dimension of batched ones is the batch
// dimension.
struct BatchedLeaves {
  std::vector<Array> leaves;
  std::vector<bool> batched;
};
BatchedLeaves split_batched(BatchTrace& trace, std::vector<Array> leaves);

// Makes a function of leaves a function of batched leaves; the first dimension of all its results
// is the batch dimension. tag: of the trace whose values the function may capture, or 0.
class BatchedBody {
 public:
  BatchedBody(detail::BodyRef f, std::vector<bool> batched, std::int64_t size,
              std::uint64_t tag = 0)
      : f_(f), batched_(std::move(batched)), size_(size), tag_(tag) {}
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;

 private:
  detail::BodyRef f_;
  std::vector<bool> batched_;
  std::int64_t size_;
  std::uint64_t tag_;
};
// The rule of a function, for arguments of which the leaves in `batched` are batched.
detail::RuleCode batched_jvp_rule(detail::RuleCode rule, std::vector<bool> batched,
                                  std::int64_t size);
// arguments: the structure of the function's arguments.
detail::ForwardCode batched_vjp_rule(detail::ForwardCode rule, std::vector<bool> batched,
                                     detail::TreeNode arguments, std::int64_t size);

// A called program's equation on batched operands: all results are batched.
struct BatchedCall {
  JaxprRef jaxpr;
  int num_consts;
  std::vector<Array> operands;
  std::vector<bool> batched;  // of the arguments after the constants
};
BatchedCall batch_called(BatchCall& call, const JaxprRef& jaxpr, std::size_t num_consts);

}  // namespace shmap
