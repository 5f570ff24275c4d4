// Functions with rules of their own on many values: the function and its rules, each mapped.
#pragma once
#include <vector>

#include "core/transforms/vmap/batch.h"
#include "shmap/custom_rules.h"

namespace shmap {

// Values of a BatchTrace as arrays of its parent, those that are many with their dim in front.
struct ManyLeaves {
  std::vector<Array> leaves;
  std::vector<bool> batched;
};
ManyLeaves split_many(BatchTrace& trace, std::vector<Array> leaves);

// A function of leaves as one of such arrays; all its results have the dim in front. tag: of the
// trace whose values the function may close over, or 0.
class ManyBody {
 public:
  ManyBody(detail::BodyRef f, std::vector<bool> batched, std::int64_t size, std::uint64_t tag = 0)
      : f_(f), batched_(std::move(batched)), size_(size), tag_(tag) {}
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;

 private:
  detail::BodyRef f_;
  std::vector<bool> batched_;
  std::int64_t size_;
  std::uint64_t tag_;
};
// The rules of a function whose arguments' leaves are many where `batched` says so.
detail::RuleCode batched_jvp_rule(detail::RuleCode rule, std::vector<bool> batched,
                                  std::int64_t size);
// arguments: their structure.
detail::ForwardCode batched_vjp_rule(detail::ForwardCode rule, std::vector<bool> batched,
                                     detail::TreeNode arguments, std::int64_t size);

// A called program's equation on many: all results are many.
struct BatchedCall {
  JaxprRef jaxpr;
  int num_consts;
  std::vector<Array> operands;
  std::vector<bool> batched;  // of the arguments after the constants
};
BatchedCall batch_called(BatchCall& call, const JaxprRef& jaxpr, std::size_t num_consts);

}  // namespace shmap
