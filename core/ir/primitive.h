// A primitive: one record with all its rules (autodidax's Primitive, JAX's core.Primitive). A rule
// that a primitive has not is a value with a reason, never an absence, so that what fails can say
// why.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/intrusive.h"
#include "core/ir/params.h"
#include "core/ir/sharding_rule.h"
#include "shmap/array.h"
#include "shmap/shaped_array.h"

namespace shmap {

struct KernelCall;  // core/runtime/kernel.h
struct GroupCall;   // core/runtime/kernel.h

// A rule, or the reason why there is none.
template <class Fn>
class Rule {
 public:
  constexpr Rule() = default;
  constexpr Rule(Fn fn) : fn_(fn) {}
  static constexpr Rule none(const char* reason) {
    Rule r;
    r.reason_ = reason;
    return r;
  }
  constexpr explicit operator bool() const { return fn_ != nullptr; }
  constexpr Fn get() const { return fn_; }
  constexpr const char* reason() const { return reason_; }

 private:
  Fn fn_ = nullptr;
  const char* reason_ = "no rule has been written for it";
};

using Types = std::span<const ShapedArray>;

// Shapes and dtypes of the results (out.size() is result_count); throws where operands don't fit.
// Leaves variance alone.
using AbstractEvalFn = void (*)(Types in, const Params&, std::span<ShapedArray> out);
// How many results, for primitives with a varying number. Null: one.
using ResultCountFn = int (*)(Types in, const Params&);
// Variance of each result from the operands' (the typing table of JEP 17111), which `env` is the
// mesh of; throws where an operand's variance is wrong. Null: the union of the operands', for every
// result.
using VarianceFn = void (*)(Types in, const Params&, const detail::AxisEnv& env,
                            std::span<ShapedArray> out);
// Estimated work of one device's call, which decides whether it runs at once or is queued, and
// orders plans.
struct Cost {
  double flops = 0;
  double bytes = 0;
};
using CostFn = Cost (*)(Types in, const Params&, Types out);
// Arithmetic operations of one device's call, each counted once, as cost_analysis gives them.
using FlopsFn = double (*)(Types in, const Params&, Types out);
// Where the result is a contiguous part of operand 0: its byte offset. -1: it is not.
using ViewFn = std::int64_t (*)(const ShapedArray& in, const Params&, const ShapedArray& out);

// The same where the place depends on operands: `data` has all of them but the first, which is
// null.
using DynamicViewFn = std::int64_t (*)(Types in, std::span<const void* const> data, const Params&,
                                       const ShapedArray& out);

// A kernel of one backend, called once a device (or once for several devices where the value is
// invariant).
using KernelFn = void (*)(const KernelCall&);
// In how many independent parts a call may be split, given so many workers. Null: one.
using PartsFn = int (*)(const KernelCall&, int workers);
// How many bytes of KernelCall::scratch a call in call.parts > 1 parts shares, or, of a kernel that
// is never split (without `parts`), the call has; 0: none.
using ScratchFn = std::int64_t (*)(const KernelCall&);
struct Kernel {
  KernelFn run = nullptr;
  PartsFn parts = nullptr;
  // Of a kernel with parts, where those give partial results: `run` leaves them in scratch, and
  // `finish`, called once after all parts, makes the results of them. Not together with in_place.
  ScratchFn scratch = nullptr;
  KernelFn finish = nullptr;
  // Adds its result to what result 0 holds. Called only where `accumulates` says that the bits are
  // those of a run and an addition after it.
  KernelFn accumulate = nullptr;
  bool (*accumulates)(const KernelCall&) = nullptr;
  bool adds = false;     // result 0 is operand 0 plus operand 1
  bool foreign = false;  // code of the user's: Task::foreign
};
// What a collective does: it is handed all local devices at once (collectives/).
using GroupFn = void (*)(GroupCall&);

// The rules of transforms, filled in with the transforms that use them.
struct JvpCall;
struct TransposeCall;
struct BatchCall;
using JvpFn = void (*)(JvpCall&);
using TransposeFn = void (*)(TransposeCall&);
using BatchFn = void (*)(BatchCall&);

// Runs the programs inside under the current trace, which runs ops at once.
using InterpretFn = void (*)(std::span<Array> in, const Params&, std::span<Array> out,
                             SourceLine source);
// Lowers an equation of global arrays to what each device does: core/transforms/lowering/lower.h.
struct LowerCall;
using LowerFn = void (*)(LowerCall&);
// A copy of the parameters with other programs inside, of the same types: in the order of visit.
using WithProgramsFn =
    std::shared_ptr<const Params> (*)(const Params&, std::span<const Ref<const Jaxpr>> programs);
// Leaves out of an equation what nobody uses: core/transforms/passes/dead_code.h.
struct PruneCall;
using PruneFn = void (*)(PruneCall&);
// How often the programs inside run, as far as that is known; of a while_loop: once.
using TripsFn = std::int64_t (*)(const Params&);

inline constexpr int kDeviceKinds = static_cast<int>(DeviceKind::cuda) + 1;

// The value on one local device of the mesh where the host knows it before a program runs, of
// operands that it knows as well: the bytes of an integer scalar. For what is not elementwise.
using HostScalarFn = std::uint64_t (*)(const Params&, const detail::MeshImpl& mesh,
                                       std::uint32_t position, std::span<const std::uint64_t> in);

struct Primitive {
  const char* name = "";
  AbstractEvalFn abstract_eval = nullptr;
  ResultCountFn result_count = nullptr;
  VarianceFn variance = nullptr;
  CostFn cost = nullptr;
  FlopsFn flops = nullptr;  // null: it moves data and computes nothing
  ViewFn view = nullptr;
  DynamicViewFn dynamic_view = nullptr;
  Kernel kernels[kDeviceKinds] = {};  // see kernel()
  GroupFn group = nullptr;            // collectives only
  bool elementwise = false;           // element i of the result is made of the operands' elements i
  HostScalarFn host_scalar = nullptr;
  bool moves_data = false;  // between devices: of collectives all but casts, pieces and indices
  // Result 0 may overwrite a donated operand of the same size. `in_place_operand`: which one, or -1
  // for any.
  bool in_place = false;
  int in_place_operand = -1;
  bool has_effect = false;  // kept, and kept in order, whatever its results are used for
  // Of primitives whose parameters hold programs (jit, shard_map, control flow); null for others.
  InterpretFn interpret = nullptr;
  LowerFn lower = nullptr;
  WithProgramsFn with_programs = nullptr;  // null: passes leave the programs inside as they are
  PruneFn prune = nullptr;                 // null: all operands and results stay
  TripsFn trips = nullptr;                 // null: once
  bool runs_one_program = false;           // of several: the branches of cond
  Rule<ShardingRuleFn> sharding =
      Rule<ShardingRuleFn>::none("operands are gathered and the result is replicated");
  Rule<JvpFn> jvp;
  Rule<TransposeFn> transpose;
  Rule<BatchFn> batching;

  // What runs it on the devices of a kind; without `run` where nothing does.
  Kernel& kernel(DeviceKind kind) { return kernels[static_cast<int>(kind)]; }
  const Kernel& kernel(DeviceKind kind) const { return kernels[static_cast<int>(kind)]; }
};

// Every primitive by name, for printing, for the coverage test and for users' look-ups.
// Registration is explicit: each block's register function calls this. Throws ValueError where
// another primitive has that name; the same one may come again, since what registers at the first
// use is repeated as a whole where memory ran out in the middle of it.
void register_primitive(Primitive& primitive);
Primitive* find_primitive(std::string_view name);  // null where there is none
std::vector<const Primitive*> all_primitives();    // by name

int result_count(const Primitive& primitive, Types in, const Params& params);
// abstract_eval, then variance. `env`: the axes in scope, or null outside a body.
void infer_types(const Primitive& primitive, Types in, const Params& params,
                 const detail::AxisEnv* env, std::span<ShapedArray> out);

}  // namespace shmap
