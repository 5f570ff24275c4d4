// Batching (jax.vmap; autodidax's BatchTrace): a function run once, on a batch of values. A batched
// value is an array with one dimension more than its elements: the batch dimension.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/ops/batch_rules.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/flat_call.h"

namespace shmap {

// Interprets operations on batched values by their batching rules, as operations of `parent`. Each
// batch has `size` elements, all of one type.
class BatchTrace final : public Trace {
 public:
  // tag: the number of the trace around a mapped body; the body may then capture values of that
  // trace, as values of this one. 0: there is no such trace. made: as in Trace.
  BatchTrace(Trace& parent, std::int64_t size, std::uint64_t tag = 0, SourceLine made = {});

  // TypeError where the primitive has no rule.
  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
  Array vary(const Array& x, const AxisSet& axes, SourceLine source) override;
  const detail::AxisEnv* axis_env() const override { return parent_.axis_env(); }
  bool staged() const override { return parent_.staged(); }
  bool auto_pbroadcast() const override { return parent_.auto_pbroadcast(); }
  bool checks_variance() const override { return parent_.checks_variance(); }
  bool transforms() const override { return true; }

  // A batched value of this trace: `dim` is the batch dimension of `values`, which has the extent
  // `size` there. The array itself where dim is -1: it is not batched.
  Array wrap(Array values, int dim) const;
  // The inverse of wrap; values of other traces are not batched (-1).
  std::pair<Array, int> split(const Array& x) const;

  Trace& parent() const { return parent_; }
  std::int64_t size() const { return size_; }
  std::uint64_t tag() const { return tag_; }

 private:
  Trace& parent_;
  std::int64_t size_;
  std::uint64_t tag_;
};

// Values with the batch dimension of each; -1: the value is not batched.
struct Batch {
  std::vector<Array> values;
  std::vector<int> dims;
};
// f on batched arguments, under the current trace. `result` receives the structure of what f
// returns; its leaves are moved out. tag: as in BatchTrace.
Batch batch_of(detail::BodyRef f, Batch args, std::int64_t size, detail::FlatTree& result,
               SourceLine source, std::uint64_t tag = 0);

// The batched program: the first dimension of operands in `batched` and of results in `batched_out`
// is the batch dimension. Values that it captures come first, as `consts`.
struct BatchedProgram {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  std::vector<bool> batched_out;
};
// `wanted`: results that are batched in any case, as carries of loops are; empty: no such results.
// `as`: types (without the batch dimension) over whose axes the results vary at least; empty: no
// requirement.
BatchedProgram batch_program(const Jaxpr& jaxpr, std::int64_t size,
                             const std::vector<bool>& batched, const std::vector<bool>& wanted = {},
                             Types as = {});

}  // namespace shmap
