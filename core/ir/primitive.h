// A primitive: one record with all its rules (autodidax's Primitive, JAX's core.Primitive). A
// missing rule is a value with a reason, which the error of a failed transform quotes.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/device_kinds.h"
#include "core/ir/params.h"
#include "core/ir/program_rules.h"
#include "core/ir/sharding_rule.h"
#include "shmap/array.h"
#include "shmap/shaped_array.h"

namespace shmap {

struct KernelCall;       // core/runtime/kernel.h
struct GroupCall;        // core/runtime/kernel.h
struct DeviceAddresses;  // core/runtime/kernel.h
struct ElementwiseRow;   // core/ops/elementwise.h
class ParamReader;       // core/extend/param_reader.h
enum class Reduction : std::uint8_t;
namespace detail {
class ExtendPrimitive;  // core/extend/user_primitive.h
}

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

// Shapes and dtypes of the results (out.size() is result_count); throws where operands do not fit.
// Does not set variance.
using AbstractEvalFn = void (*)(Types in, const Params&, std::span<ShapedArray> out);
// The number of results, for primitives with a varying number. Null: one.
using ResultCountFn = int (*)(Types in, const Params&);
// The variance of each result from the variance of the operands (the typing table of JEP 17111);
// `env`: the axes of the mesh in scope. Throws where an operand's variance is wrong. Null: each
// result varies over the axes of all operands.
using VarianceFn = void (*)(Types in, const Params&, const detail::AxisEnv& env,
                            std::span<ShapedArray> out);
// The estimated work of one device's call. It decides whether the call runs at once or is queued,
// and it orders plans.
struct Cost {
  double flops = 0;
  double bytes = 0;
};
using CostFn = Cost (*)(Types in, const Params&, Types out);
// The arithmetic operations of one device's call, each counted once (cost_analysis).
using FlopsFn = double (*)(Types in, const Params&, Types out);
// The byte offset of the result in operand 0, if the result is a contiguous part of that operand;
// otherwise -1.
using ViewFn = std::int64_t (*)(const ShapedArray& in, const Params&, const ShapedArray& out);

// As ViewFn, for an offset that depends on the values of operands: `data` has the addresses of all
// operands, with null for operand 0.
using DynamicViewFn = std::int64_t (*)(Types in, std::span<const void* const> data, const Params&,
                                       const ShapedArray& out);

// A kernel of one backend, called once for each device (or once for several devices on which the
// value is the same).
using KernelFn = void (*)(const KernelCall&);
// Into how many independent parts a call may be split, for that many workers. Null: one.
using PartsFn = int (*)(const KernelCall&, int workers);
// The bytes of KernelCall::scratch; 0: none. A kernel with `parts` gets them only where call.parts
// > 1, and its parts share them; a kernel without `parts` gets them in every call.
using ScratchFn = std::int64_t (*)(const KernelCall&);
// A mask of the operands (bit i: operand i) whose memory the result with that index may get, in a
// call with these parameters.
using OverwritesFn = std::uint32_t (*)(const Params&, std::size_t result);
// Performs the calls of several devices, one after another, without parts. The addresses are those
// in `devices`; the addresses and the position in the KernelCall must not be used. Only for kernels
// that cannot fail, have at most DeviceAddresses::kIn operands and one result, and need no scratch.
using EachFn = void (*)(const KernelCall&, std::span<const DeviceAddresses> devices) noexcept;
struct Kernel {
  KernelFn run = nullptr;
  PartsFn parts = nullptr;
  // For a kernel whose parts compute partial results: `run` leaves these in scratch, and `finish`,
  // called once after all parts, combines them. `run` writes nothing else.
  ScratchFn scratch = nullptr;
  KernelFn finish = nullptr;
  // Does what `run` does, for the small blocks of several devices, which one thread then computes
  // in one call: work that is the same for all devices is done once. Null: `run` is called for each
  // device.
  EachFn each = nullptr;
  // Adds the result to the contents of result 0. Called only where `accumulates` says that this
  // gives the same bits as `run` and a separate addition.
  KernelFn accumulate = nullptr;
  bool (*accumulates)(const KernelCall&) = nullptr;
  // Which operands each result may overwrite, where that depends on the kernel: see may_overwrite()
  // in core/runtime/kernel.h.
  OverwritesFn overwrites = nullptr;
  bool adds = false;     // result 0 is operand 0 plus operand 1
  bool foreign = false;  // a user's code: see Task::foreign
};
// A collective's implementation, called once with the blocks of all local devices (collectives/).
using GroupFn = void (*)(GroupCall&);

// The rules of transforms, which the transforms' files set.
struct JvpCall;
struct TransposeCall;
struct BatchCall;
using JvpFn = void (*)(JvpCall&);
using TransposeFn = void (*)(TransposeCall&);
using BatchFn = void (*)(BatchCall&);

// Runs the programs in the parameters under the current trace, which runs operations eagerly.
using InterpretFn = void (*)(std::span<Array> in, const Params&, std::span<Array> out,
                             SourceLine source);
// Lowers an equation of global arrays to equations of blocks: core/compiler/lowering/lower.h.
struct LowerCall;
using LowerFn = void (*)(LowerCall&);

// The value of a result that is an integer scalar, on the local device at `position` of the mesh,
// as the bytes of a std::uint64_t. `in`: the values of the operands, which the host knows
// (KnownScalars). For primitives that are not elementwise.
using HostScalarFn = std::uint64_t (*)(const Params&, const detail::MeshImpl& mesh,
                                       std::uint32_t position, std::span<const std::uint64_t> in);

// How an equation is made from named parameters, for programs that are built by hand or parsed from
// text.
using ReadParamsFn = std::shared_ptr<const Params> (*)(ParamReader&);
inline constexpr int kAnyNumber = 1 << 20;
struct ParamSyntax {
  int min_operands = 0, max_operands = kAnyNumber;
  ReadParamsFn read = nullptr;    // null: no parameters
  const char* refused = nullptr;  // why the equation cannot be made; null: it can
};

// What a collective sends between devices, by which its time is estimated before it runs. Casts of
// variance, pscatter (a device's piece of a value that it has) and axis_index are collectives too,
// and send nothing.
enum class Traffic : std::uint8_t {
  none,
  reduce,     // all blocks to all devices, combined
  gather,     // all blocks to all devices
  scatter,    // all blocks combined, and a piece of the result to each device
  exchange,   // a piece of each block to each device
  permute,    // one block to another device
  broadcast,  // one block to all devices
};
// Whether the devices that communicate end up with equal results.
constexpr bool gives_equal(Traffic traffic) {
  return traffic == Traffic::reduce || traffic == Traffic::gather || traffic == Traffic::broadcast;
}

struct Primitive {
  const char* name = "";
  AbstractEvalFn abstract_eval = nullptr;
  ResultCountFn result_count = nullptr;
  VarianceFn variance = nullptr;
  CostFn cost = nullptr;
  FlopsFn flops = nullptr;  // null: no arithmetic, only data is moved
  ViewFn view = nullptr;
  DynamicViewFn dynamic_view = nullptr;
  Kernel kernels[kDeviceKinds] = {};  // see kernel()
  // Why a backend need not have a kernel; null: each must have one (check_kernels). Not needed
  // where `group` or `interpret` runs the operation.
  const char* no_kernel = nullptr;
  GroupFn group = nullptr;  // collectives only
  // element i of the result depends only on elements i of the operands
  bool elementwise = false;
  HostScalarFn host_scalar = nullptr;
  // What is sent between devices. Traffic::none for casts, pscatter, axis_index, and for all
  // primitives that are not collectives.
  Traffic traffic = Traffic::none;
  constexpr bool moves_data() const { return traffic != Traffic::none; }
  // Whether a result may overwrite a donated operand that has as many bytes and the same itemsize.
  // Kernel::overwrites says which result and which operand. For a kernel without that function,
  // result 0 may overwrite operand `in_place_operand`, or any operand if that is -1.
  bool in_place = false;
  int in_place_operand = -1;
  bool has_effect = false;  // must run, in program order, even if its results are not used
  // For primitives whose parameters contain programs; null for others.
  InterpretFn interpret = nullptr;
  LowerFn lower = nullptr;
  ProgramRules programs = {};
  Rule<ShardingRuleFn> sharding =
      Rule<ShardingRuleFn>::none("operands are gathered and the result is replicated");
  Rule<JvpFn> jvp;
  Rule<TransposeFn> transpose;
  Rule<BatchFn> batching;
  // The row of a list of operations (core/base) from which the primitive was made, by which
  // backends choose kernels; null and std::nullopt for other primitives.
  const ElementwiseRow* elementwise_row = nullptr;
  std::optional<Reduction> reduction = {};
  // Set by the register functions of core/extend, and of rooms above it for their primitives.
  ParamSyntax syntax = {0, 0, nullptr, "its parameters cannot be given by name"};
  // The rules that a user gave to a primitive of their own; null for the library's primitives.
  detail::ExtendPrimitive* user = nullptr;

  // The kernel for devices of a kind; its `run` is null where there is none.
  Kernel& kernel(DeviceKind kind) { return kernels[static_cast<int>(kind)]; }
  const Kernel& kernel(DeviceKind kind) const { return kernels[static_cast<int>(kind)]; }
};

// All primitives by name, for printing, for the coverage test and for users. The register function
// of each family registers its primitives. ValueError where another primitive has that name. The
// same primitive may be registered twice: if memory runs out in the middle of the registration at
// the first use, the registration is later repeated from the start.
void register_primitive(Primitive& primitive);
Primitive* find_primitive(std::string_view name);  // null where there is none
std::vector<const Primitive*> all_primitives();    // by name
// Throws Error where a registered primitive has neither a kernel for devices of one of these kinds
// nor a reason for it (Primitive::no_kernel); names all of them. Called at the library's start.
void check_kernels(std::span<const DeviceKind> kinds);

// Primitive::result_count, or 1.
int result_count(const Primitive& primitive, Types in, const Params& params);
// abstract_eval, then variance. `env`: the axes in scope, or null outside a body.
void infer_types(const Primitive& primitive, Types in, const Params& params,
                 const detail::AxisEnv* env, std::span<ShapedArray> out);

}  // namespace shmap
