// Control flow as equations: while, scan and cond, with programs inside; and the ways in which they
// run: staged, eagerly, interpreted, lowered. All of them work on leaves.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/transforms/tracing/make_jaxpr.h"
#include "shmap/control_flow.h"

namespace shmap {

// Operands: constants of the condition, constants of the body, the carry. Results: the carry.
// cond_jaxpr: (constants, carry) -> (bool[]); body_jaxpr: (constants, carry) -> carry.
extern Primitive while_p;
struct WhileParams : ParamsOf<WhileParams> {
  JaxprRef cond_jaxpr, body_jaxpr;
  int cond_nconsts = 0, body_nconsts = 0;
  void visit(ParamVisitor& v) const override;
};

// Operands: constants, the carry, xs. Results: the carry, ys. jaxpr: (constants, carry, an x of
// each of xs) -> (carry, a y of each of ys). A fori_loop with static bounds is one.
extern Primitive scan_p;
struct ScanLoopParams : ParamsOf<ScanLoopParams> {
  JaxprRef jaxpr;
  std::int64_t length = 0;
  bool reverse = false;
  int num_consts = 0, num_carry = 0;
  void visit(ParamVisitor& v) const override;
};

// Operands: the index, then what every branch takes. A bool index has the branches (false, true);
// an integer one is clamped to them.
extern Primitive cond_p;
struct CondParams : ParamsOf<CondParams> {
  std::vector<JaxprRef> branches;
  void visit(ParamVisitor& v) const override;
};

// Where a loop or branch was written, for its errors.
struct FlowSite {
  const char* what;                        // "scan"
  const detail::TreeNode* tree = nullptr;  // of the carry or the result; null: of leaves alone
  std::size_t hidden = 0;                  // leaves before the tree's: the index of a fori_loop
  SourceLine source;
  // "carry[1]"
  std::string path(std::size_t leaf, const char* root) const;
};

// ---- types (control_flow_types.cpp)
// The type that a trip begins with for a leaf of the carry; a literal goes with any variance.
struct CarryType {
  ShapedArray type;
  bool literal = false;
};
std::vector<CarryType> carry_types(std::span<const Array> carry);
// What a carry of type `in` has to be for a trip that gives `out`: `in`, but for weak host scalars,
// which take the body's dtype, and variance, which is joined. TypeErrors; one of them where casts
// are the user's to write and are missing.
ShapedArray join_carry(const FlowSite& site, std::size_t leaf, const CarryType& in,
                       const Array& out);
// What leaf `leaf` of two branches' results has to be.
ShapedArray join_branches(const FlowSite& site, std::size_t leaf, const ShapedArray& a,
                          const std::string& name_a, const ShapedArray& b,
                          const std::string& name_b);
// The y of one more trip of an eager scan; `joint` is the type of those before it, and then of all.
void check_y(const FlowSite& site, std::size_t leaf, ShapedArray& joint, const Array& y,
             std::int64_t trip);
// Where casts are the user's to write: the TypeError for a value of type `type` that has to vary as
// `wanted` does; `why` continues "carry[1] has type f32[2] ".
void require_axes(const FlowSite& site, const std::string& path, const Array& x,
                  const AxisSet& wanted, const std::string& why);
// x with that dtype, weakness and at least those axes. In unchecked traces variance is left alone.
Array fit(Array x, const ShapedArray& type, SourceLine source);
// TypeErrors where the value that decides is of the wrong type.
void check_predicate(const FlowSite& site, const char* noun, const ShapedArray& type);
void check_index(const FlowSite& site, const ShapedArray& type);
ShapedArray element_type(const ShapedArray& xs);                      // of what is scanned over
ShapedArray stacked_type(const ShapedArray& y, std::int64_t length);  // its inverse
std::vector<ShapedArray> types_of(std::span<const Array> values);
// How xs have to be split to be taken apart, how their elements are then, and ys of such y's.
const Sharding* whole_in_front(const Sharding* xs);
const Sharding* element_sharding(const Sharding* xs);
const Sharding* stacked_sharding(const Sharding* y);

// ---- a program as a body
class JaxprBody {
 public:
  JaxprBody(const Jaxpr& jaxpr, std::span<const Array> consts) : jaxpr_(jaxpr), consts_(consts) {}
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;

 private:
  const Jaxpr& jaxpr_;
  std::span<const Array> consts_;
};

// ---- at once, on values (control_flow_eager.cpp)
using detail::BodyRef;
std::vector<Array> run_while(const FlowSite& site, BodyRef test, BodyRef body,
                             std::vector<Array> carry);
// Results: the carry, then ys.
std::vector<Array> run_scan(const FlowSite& site, BodyRef body, std::vector<Array> carry,
                            std::vector<Array> xs, std::int64_t length, bool reverse);
// Whether the host cannot decide by this value, since it is batched (vmap) or has blocks that
// differ from device to device. Then control flow is left as an equation.
bool is_beyond_host(const Array& x);
// names: of the branches, for errors.
detail::BranchLeaves run_cond(const FlowSite& site, const Array& index,
                              std::span<const BodyRef> branches, std::span<const std::string> names,
                              std::vector<Array> arguments);

// ---- as equations of the current trace (control_flow_staged.cpp)
std::vector<Array> stage_while(const FlowSite& site, BodyRef test, BodyRef body,
                               std::vector<Array> init);
std::vector<Array> stage_scan(const FlowSite& site, BodyRef body, std::vector<Array> init,
                              std::vector<Array> xs, std::int64_t length, bool reverse);
std::vector<Array> stage_cond(const FlowSite& site, const Array& index,
                              std::span<const BodyRef> branches, std::span<const std::string> names,
                              std::vector<Array> arguments);
// Names of a cond's or switch's branches: "the true branch", "branch 2".
std::vector<std::string> branch_names(const ShapedArray& index, std::size_t count);

// The program with arguments that vary over these axes too, and results of these types: casts move
// out of it, as far as they can.
JaxprRef widen(const Jaxpr& jaxpr, const AxisSet& axes, std::span<const ShapedArray> results);
// Stages a program that was traced outside of every body, in a body: control flow inside is traced
// anew for operands that vary there.
std::vector<Array> stage_in_body(const Jaxpr& jaxpr, std::vector<Array> args);

// ---- without what nobody uses (control_flow_prune.cpp)
struct PruneCall;
void prune_while(PruneCall& call);
void prune_scan(PruneCall& call);
void prune_cond(PruneCall& call);

// ---- lowered (control_flow_lower.cpp)
struct LowerCall;
void lower_while(LowerCall& call);
void lower_scan(LowerCall& call);
void lower_cond(LowerCall& call);

// ---- batched (batch.cpp)
void batch_while(BatchCall& call);
void batch_scan(BatchCall& call);
void batch_cond(BatchCall& call);

}  // namespace shmap
