// The rules of users' primitives, which call the users' functions and check what these return.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/compiler/lowering/lower.h"
#include "core/device/device_kinds.h"
#include "core/device/runtime.h"
#include "core/extend/sharding_text.h"
#include "core/extend/user_primitive.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/rules.h"
#include "core/runtime/kernel.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/make_jaxpr.h"

namespace shmap {

namespace {

using detail::ExtendPrimitive;
using detail::ExtendRules;
using extend::Arrays;
using extend::ArrayTypes;

ExtendPrimitive& primitive_of(const Params& params) {
  return *params_as<ExtendParams>(params).primitive;
}
const ExtendRules& rules_of(const Params& params) { return primitive_of(params).rules; }
const extend::Params& values_of(const Params& params) {
  return params_as<ExtendParams>(params).values;
}

[[noreturn]] void throw_count(const Params& params, const char* rule, const char* what,
                              std::size_t given, std::size_t wanted, SourceLine source = {}) {
  throw TypeError(primitive_of(params).name + ": its " + rule + " gave " + std::to_string(given) +
                  " " + what + ", and " + std::to_string(wanted) + " are wanted" + at_line(source));
}

ArrayTypes result_types(Types in, const Params& params) {
  ArrayTypes plain;
  for (const ShapedArray& t : in) plain.emplace_back(t.dims(), t.dtype(), t.weak(), AxisSet());
  return rules_of(params).abstract_eval(std::move(plain), values_of(params));
}

int count_results(Types in, const Params& params) {
  return static_cast<int>(result_types(in, params).size());
}

void eval_types(Types in, const Params& params, std::span<ShapedArray> out) {
  const ArrayTypes types = result_types(in, params);
  if (types.size() != out.size())
    throw_count(params, "def_abstract_eval", "types", types.size(), out.size());
  for (std::size_t o = 0; o < out.size(); ++o)
    out[o] = ShapedArray(types[o].dims(), types[o].dtype(), types[o].weak(), AxisSet());
}

// The variance rule of a primitive that has a def_variance.
void vary_as_ruled(Types in, const Params& params, const detail::AxisEnv& env,
                   std::span<ShapedArray> out) {
  const std::vector<Axes> axes =
      rules_of(params).variance(ArrayTypes(in.begin(), in.end()), values_of(params));
  if (axes.size() != out.size())
    throw_count(params, "def_variance", "lists of axes", axes.size(), out.size());
  for (std::size_t o = 0; o < out.size(); ++o) {
    std::uint32_t mask = 0;
    for (const std::string& name : axes[o]) {
      const int axis = env.find(name);
      if (axis < 0) {
        throw ValueError(primitive_of(params).name + ": its def_variance lets result " +
                         std::to_string(o) + " vary over the mesh axis '" + name + "'" +
                         did_you_mean(name, env.names) + ", which is not in scope");
      }
      mask |= 1u << axis;
    }
    out[o] = out[o].with_axes(AxisSet(&env, mask));
  }
}

using GivenKernel = decltype(&ExtendRules::cpu_kernel);

template <DeviceKind kind, GivenKernel given>
void run_kernel_of(const KernelCall& call) {
  const ExtendPrimitive& p = primitive_of(call.params);
  if (!row_of(kind).host_memory && call.literals != 0) {
    throw DeviceError(p.name +
                      ": a host scalar came to its CUDA kernel: pass an array of shape ()");
  }
  extend::KernelArgs args;
  args.in = call.in;
  args.out = call.out;
  args.in_types = call.in_types;
  args.out_types = call.out_types;
  args.stream = call.native;
  args.params = &values_of(call.params);
  (p.rules.*given)(args);
}

// The kinds of devices for which users write kernels: the user's kernel, and the function that
// calls it.
struct UserKernel {
  DeviceKind kind;
  GivenKernel given;
  KernelFn run;
};
template <DeviceKind kind, GivenKernel given>
constexpr UserKernel kUserKernel = {kind, given, run_kernel_of<kind, given>};
constexpr UserKernel kUserKernels[] = {kUserKernel<DeviceKind::cpu, &ExtendRules::cpu_kernel>,
                                       kUserKernel<DeviceKind::cuda, &ExtendRules::cuda_kernel>};

// The results of def_impl must have the types of def_abstract_eval, and may vary only over axes of
// the operands: programs have these types, and plans allocate memory by them.
void check_results(const Params& params, Types given, Types promised, SourceLine source) {
  const auto text = [&](std::size_t o) {
    return primitive_of(params).name + ": result " + std::to_string(o) +
           " of its def_impl has type " + to_string(given[o]);
  };
  if (given.size() != promised.size()) {
    throw TypeError(primitive_of(params).name + ": its def_impl gave " +
                    counted(given.size(), "result") + ", and its def_abstract_eval promised " +
                    std::to_string(promised.size()) + at_line(source));
  }
  for (std::size_t o = 0; o < given.size(); ++o) {
    if (given[o].dtype() != promised[o].dtype() || !(given[o].dims() == promised[o].dims())) {
      throw TypeError(text(o) + ", and its def_abstract_eval promised " + to_string(promised[o]) +
                      ": make the two agree" + at_line(source));
    }
    if (!promised[o].axes().contains(given[o].axes())) {
      throw TypeError(text(o) + ", and no operand varies over all of these mesh axes, so that " +
                      to_string(promised[o]) +
                      " is promised: make the result equal over the devices (psum, pmax), or cast "
                      "an operand with pbroadcast before" +
                      at_line(source));
    }
  }
}

void interpret_impl(std::span<Array> in, const Params& params, std::span<Array> out,
                    SourceLine source) {
  ArrayTypes types;
  AxisSet axes;
  for (const Array& x : in) {
    types.push_back(node_of(x)->type);
    axes = axes | types.back().axes();
  }
  Arrays results = rules_of(params).impl(Arrays(in.begin(), in.end()), values_of(params));
  ArrayTypes given, promised = result_types(types, params);
  for (const Array& x : results) given.push_back(checked_node(x, "def_impl", source).type);
  for (ShapedArray& t : promised) t = t.with_axes(axes);
  if (rules_of(params).variance) {
    if (const detail::AxisEnv* env = current_trace().axis_env())
      vary_as_ruled(types, params, *env, promised);
  }
  check_results(params, given, promised, source);
  for (std::size_t o = 0; o < results.size(); ++o)
    out[o] = current_trace().vary(results[o], promised[o].axes(), source);
}

// Throws for a primitive with neither a kernel nor an impl, which can be traced but not run.
void interpret_nothing(std::span<Array>, const Params& params, std::span<Array>,
                       SourceLine source) {
  throw TypeError(
      primitive_of(params).name + " has neither a def_impl nor a kernel for the backend '" +
      runtime().backend().name() + "', so that it can be traced but not run" + at_line(source));
}
void lower_nothing(LowerCall& call) { interpret_nothing({}, call.params, {}, call.source); }

// Replaces the equation by the program of its impl.
void lower_impl(LowerCall& call) {
  Arrays arguments;
  for (const LowerValue& x : call.in) arguments.push_back(Array::first(new TypeNode(x.type)));
  const ClosedJaxpr program = make_jaxpr([&](Arrays in) {
    return rules_of(call.params).impl(std::move(in), values_of(call.params));
  })(arguments);
  if (!program.consts().empty()) {
    throw TypeError(primitive_of(call.params).name +
                    ": its def_impl closes over arrays: pass them as operands" +
                    at_line(call.source));
  }
  check_results(call.params, program.out_types(), call.out_types, call.source);
  std::vector<LowerValue> results =
      call.lowering.program(*program.impl().jaxpr, {call.in.begin(), call.in.end()});
  std::move(results.begin(), results.end(), call.out.begin());
}

void jvp_of(JvpCall& call) {
  Arrays primals(call.primals.begin(), call.primals.end()), tangents;
  for (std::size_t i = 0; i < primals.size(); ++i)
    tangents.push_back(or_zeros(call.tangents[i], call.type(i), call.source));
  auto [y, y_dot] =
      rules_of(call.params).jvp(std::move(primals), std::move(tangents), values_of(call.params));
  if (y.size() != call.out.size())
    throw_count(call.params, "def_jvp", "results", y.size(), call.out.size(), call.source);
  if (y_dot.size() != call.out.size())
    throw_count(call.params, "def_jvp", "tangents", y_dot.size(), call.out.size(), call.source);
  std::move(y.begin(), y.end(), call.out.begin());
  std::move(y_dot.begin(), y_dot.end(), call.tangents_out.begin());
}

void transpose_of(TransposeCall& call) {
  Arrays cotangents;
  for (std::size_t o = 0; o < call.cotangents.size(); ++o)
    cotangents.push_back(or_zeros(call.cotangents[o], call.out_types[o], call.source));
  Arrays bars = rules_of(call.params)
                    .transpose(std::move(cotangents), Arrays(call.in.begin(), call.in.end()),
                               values_of(call.params));
  if (bars.size() != call.in.size())
    throw_count(call.params, "def_transpose", "cotangents", bars.size(), call.in.size(),
                call.source);
  for (std::size_t i = 0; i < bars.size(); ++i)
    if (call.is_linear(i)) call.out[i] = std::move(bars[i]);
}

void batch_of(BatchCall& call) {
  auto [y, dims] =
      rules_of(call.params)
          .batching(Arrays(call.in.begin(), call.in.end()),
                    std::vector<int>(call.dims.begin(), call.dims.end()), values_of(call.params));
  if (y.size() != call.out.size() || dims.size() != call.out.size())
    throw_count(call.params, "def_batching", "results and dims", std::min(y.size(), dims.size()),
                call.out.size(), call.source);
  std::move(y.begin(), y.end(), call.out.begin());
  std::copy(dims.begin(), dims.end(), call.out_dims.begin());
}

FactorRule sharding_of(Types in, const Params& params, Types out) {
  const ExtendPrimitive& p = primitive_of(params);
  const std::string text = p.rules.sharding(ArrayTypes(in.begin(), in.end()),
                                            ArrayTypes(out.begin(), out.end()), values_of(params));
  return parse_sharding_text(p.name, text, in, out);
}

}  // namespace

void check_sharding(ExtendPrimitive& p, const Arrays& operands, const ExtendParams& params) {
  // A function that cannot be called is an error only where an operand has dims to split.
  const auto has_dims = [](const Array& x) { return node_of(x)->type.rank() > 0; };
  if (!p.rules.sharding) return;
  if (!p.rules.calls_sharding && std::none_of(operands.begin(), operands.end(), has_dims)) return;
  ArrayTypes in;
  std::string key;
  for (const Array& x : operands) {
    const ShapedArray& t = node_of(x)->type;
    in.emplace_back(t.dims(), t.dtype(), t.weak(), AxisSet());
    key += to_string(t) + " ";
  }
  append_key(params, key);
  std::lock_guard lock(p.mutex);
  if (p.sharded.count(key)) return;
  sharding_of(in, params, result_types(in, params));
  constexpr std::size_t kMost = 1024;
  if (p.sharded.size() >= kMost) p.sharded.clear();
  p.sharded.insert(std::move(key));
}

void seal(ExtendPrimitive& self) {
  std::call_once(self.sealed, [&self] {
    const ExtendRules& rules = self.rules;
    Primitive& p = self.primitive;
    if (rules.abstract_eval) {
      p.abstract_eval = eval_types;
      p.result_count = count_results;
    }
    if (rules.variance) p.variance = vary_as_ruled;
    for (const UserKernel& user : kUserKernels)
      if (rules.*user.given) p.kernel(user.kind).run = user.run;
    for (Kernel& kernel : p.kernels) kernel.foreign = kernel.run != nullptr;
    if (!p.kernel(runtime().backend().kind()).run && rules.impl) {
      p.interpret = interpret_impl;
      p.lower = lower_impl;
    } else if (!p.kernel(runtime().backend().kind()).run) {
      p.interpret = interpret_nothing;
      p.lower = lower_nothing;
    }
    p.jvp = Rule<JvpFn>::none("no rule was given for it: give one with .def_jvp");
    p.transpose = Rule<TransposeFn>::none("no rule was given for it: give one with .def_transpose");
    p.batching = Rule<BatchFn>::none("no rule was given for it: give one with .def_batching");
    if (rules.jvp) p.jvp = Rule<JvpFn>(jvp_of);
    if (rules.transpose) p.transpose = Rule<TransposeFn>(transpose_of);
    if (rules.batching) p.batching = Rule<BatchFn>(batch_of);
    if (rules.sharding) p.sharding = Rule<ShardingRuleFn>(sharding_of);
    self.bound.store(true, std::memory_order_release);
  });
}

}  // namespace shmap
