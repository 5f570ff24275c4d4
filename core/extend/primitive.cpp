// Users' primitives: each is a Primitive whose rules call the user's functions.
#include "shmap/extend.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "core/base/nearest_name.h"
#include "core/device/device_kinds.h"
#include "core/device/runtime.h"
#include "core/extend/cuda_source.h"
#include "core/extend/param_reader.h"
#include "core/extend/sharding_text.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/rules.h"
#include "core/runtime/kernel.h"
#include "core/transforms/lowering/lower.h"
#include "core/transforms/tracing/make_jaxpr.h"
#include "shmap/make_jaxpr.h"
#include "shmap/ops.h"

namespace shmap {

namespace detail {

// The primitive behind the handles of one name. Never destroyed, because programs and tasks refer
// to it.
class ExtendPrimitive {
 public:
  explicit ExtendPrimitive(std::string given) : name(std::move(given)) {
    primitive.name = name.c_str();
  }

  const std::string name;
  ExtendRules rules;
  Primitive primitive;
  std::once_flag sealed;
  std::atomic<bool> bound{false};

  // The operand types for which the sharding rule was found to fit.
  std::mutex mutex;
  std::set<std::string> sharded;
};

}  // namespace detail

namespace {

using detail::ExtendPrimitive;
using detail::ExtendRules;
using extend::Arrays;
using extend::ArrayTypes;

struct ExtendParams : ParamsOf<ExtendParams> {
  ExtendParams(ExtendPrimitive* p, extend::Params v) : primitive(p), values(std::move(v)) {}
  ExtendPrimitive* primitive;
  extend::Params values;  // all parameters, with the defaults
  bool print(std::string* text) const override {
    if (!primitive->rules.print) return false;
    *text = primitive->rules.print(values);
    return true;
  }
  void visit(ParamVisitor& v) const override {
    for (const auto& [name, value] : values) {
      if (const auto* program = std::get_if<ClosedJaxpr>(&value.variant())) {
        v.value(name, *program->impl().jaxpr);
      } else {
        v.value(name, std::string_view(extend::to_string(value)));
      }
    }
  }
};

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

// The VarianceFn of a primitive with a def_variance.
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

template <DeviceKind kind>
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
  (kind == DeviceKind::cpu ? p.rules.cpu_kernel : p.rules.cuda_kernel)(args);
}

// The results of def_impl must have the types of def_abstract_eval, and may vary only over axes of
// the operands: programs have these types, and plans allocate memory by them.
void check_results(const Params& params, Types given, Types promised, SourceLine source) {
  const auto text = [&](std::size_t o) {
    return primitive_of(params).name + ": result " + std::to_string(o) +
           " of its def_impl has type " + to_string(given[o]);
  };
  if (given.size() != promised.size()) {
    throw TypeError(primitive_of(params).name + ": its def_impl gave " +
                    std::to_string(given.size()) + " results, and its def_abstract_eval promised " +
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

// For a primitive with neither a kernel nor an impl, which can be traced but not run.
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

// Checks the sharding rule at bind, so that a wrong rule is found there, and not only when an array
// is split.
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
    if (rules.cpu_kernel) p.kernel(DeviceKind::cpu).run = run_kernel_of<DeviceKind::cpu>;
    if (rules.cuda_kernel) p.kernel(DeviceKind::cuda).run = run_kernel_of<DeviceKind::cuda>;
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

// All primitives of users; never destroyed.
struct Users {
  std::mutex mutex;
  std::vector<std::unique_ptr<ExtendPrimitive>> made;
};
Users& users() {
  static auto& all = *new Users;
  return all;
}

// The value of a declared parameter, converted to the type of its default: an integer to a float,
// an empty list to an empty list of another type, lists of two to pairs.
extend::ParamValue fit(const ExtendPrimitive& p, const std::string& name,
                       const extend::ParamValue& given, const extend::ParamValue& model) {
  if (given.variant().index() == model.variant().index()) return given;
  const auto* integer = std::get_if<std::int64_t>(&given.variant());
  if (integer && std::holds_alternative<double>(model.variant()))
    return static_cast<double>(*integer);
  const auto* list = std::get_if<std::vector<std::int64_t>>(&given.variant());
  if (list && list->empty()) {
    if (std::holds_alternative<std::vector<std::string>>(model.variant()))
      return std::vector<std::string>();
    if (std::holds_alternative<extend::ParamValue::Pairs>(model.variant()))
      return extend::ParamValue::Pairs();
    if (std::holds_alternative<extend::ParamValue::Groups>(model.variant()))
      return extend::ParamValue::Groups();
  }
  const auto* groups = std::get_if<extend::ParamValue::Groups>(&given.variant());
  if (groups && std::holds_alternative<extend::ParamValue::Pairs>(model.variant())) {
    extend::ParamValue::Pairs pairs;
    for (const std::vector<int>& g : *groups)
      if (g.size() == 2) pairs.emplace_back(g[0], g[1]);
    if (pairs.size() == groups->size()) return pairs;
  }
  throw TypeError(p.name + ": the parameter '" + name + "' is " + extend::to_string(given) +
                  ", and its def_params has one of another type, " + extend::to_string(model));
}

// All parameters: those given, checked against def_params, and the defaults of the others.
extend::Params all_params(const ExtendPrimitive& p, const extend::Params& given, bool from_text) {
  extend::Params all = p.rules.defaults;
  for (const auto& [name, value] : given) {
    const auto it = all.find(name);
    if (it == all.end()) {
      if (p.rules.defaults.empty()) {
        throw ValueError(p.name + ": there is no parameter '" + name +
                         "': it has none, give it some with .def_params");
      }
      extend::throw_param_name(p.name, name, p.rules.defaults, {});
    }
    const auto* text = from_text ? std::get_if<std::string>(&value.variant()) : nullptr;
    it->second = fit(p, name, text ? value_of_text(*text) : value, it->second);
  }
  return all;
}

// Adds the caller's line to the errors of `f`.
template <class F>
auto at_caller(SourceLine source, F f) {
  try {
    return f();
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line_once(e.what(), source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line_once(e.what(), source));
  }
}

ExtendPrimitive* find_user(const Primitive& primitive) {
  Users& all = users();
  std::lock_guard lock(all.mutex);
  for (const auto& made : all.made)
    if (&made->primitive == &primitive) return made.get();
  return nullptr;
}

}  // namespace

Primitive* find_user_primitive(std::string_view name) {
  ExtendPrimitive* found = nullptr;
  {
    Users& all = users();
    std::lock_guard lock(all.mutex);
    for (const auto& made : all.made)
      if (made->name == name) found = made.get();
  }
  if (!found) return nullptr;
  seal(*found);
  return &found->primitive;
}

std::vector<std::string> user_primitive_names() {
  Users& all = users();
  std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& made : all.made) names.push_back(made->name);
  return names;
}

bool is_user_primitive(const Primitive& primitive) { return find_user(primitive) != nullptr; }

std::shared_ptr<const Params> make_user_params(const Primitive& primitive,
                                               const extend::Params& given, ReadScope& scope) {
  ExtendPrimitive& p = *find_user(primitive);
  if (!p.primitive.abstract_eval) {
    throw TypeError(p.name +
                    " has no def_abstract_eval, and no equation of it can be made: give "
                    "it one with .def_abstract_eval");
  }
  if (scope.from_text && p.rules.print) {
    throw ValueError(p.name +
                     ": an equation of it cannot be read: its def_print prints it, and "
                     "need not say all of its parameters");
  }
  return std::make_shared<ExtendParams>(&p, all_params(p, given, scope.from_text));
}

const extend::Params* user_params(const Params& params) {
  const auto* users = dynamic_cast<const ExtendParams*>(&params);
  return users ? &users->values : nullptr;
}

void prepare_user_operands(const Primitive& primitive, const Params& params,
                           std::vector<Array>& operands) {
  if (!user_params(params)) return;
  check_sharding(primitive_of(params), operands, params_as<ExtendParams>(params));
  const DeviceKind kind = runtime().backend().kind();
  if (!row_of(kind).host_memory && primitive.kernel(kind).run) {
    // The kernel of a device with memory of its own cannot read host memory, so that literals are
    // copied to the device.
    for (Array& x : operands)
      if (node_of(x)->kind == NodeKind::literal) x = full({}, x);
  }
}

namespace detail {

void throw_unusable_rule(const std::string& primitive, const char* rule, std::size_t operands) {
  throw TypeError(primitive + ": the function that was given to its " + rule +
                  " cannot be called with " + std::to_string(operands) +
                  " operands, one by one or as a std::vector: see shmap/extend/primitive.h");
}

}  // namespace detail

namespace extend {

Primitive::Primitive(std::string name) {
  if (name.empty()) throw ValueError("extend::Primitive: the name is empty");
  Users& all = users();
  std::lock_guard lock(all.mutex);
  primitive_ = all.made.emplace_back(std::make_unique<ExtendPrimitive>(std::move(name))).get();
}

const std::string& Primitive::name() const { return primitive_->name; }

ExtendRules& Primitive::rules() {
  if (primitive_->bound.load(std::memory_order_acquire)) {
    throw Error(primitive_->name +
                ": a rule was given after the first bind: give all of them before");
  }
  return primitive_->rules;
}

Primitive& Primitive::def_params(Params defaults) {
  for (const auto& [key, value] : defaults) {
    const auto is_plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (key.empty() || !std::all_of(key.begin(), key.end(), is_plain)) {
      throw ValueError(name() + ": def_params: the name '" + key +
                       "' is not made of letters, digits and '_'");
    }
  }
  rules().defaults = std::move(defaults);
  return *this;
}

Primitive& Primitive::def_print(std::function<std::string(const Params&)> f) {
  rules().print = std::move(f);
  return *this;
}

Primitive& Primitive::def_cuda_source(std::string source, std::string kernel, int threads) {
  if (kernel.empty() || source.find(kernel) == std::string::npos)
    throw ValueError(name() + ": def_cuda_source: the source has no '" + kernel + "'");
  if (threads < 1 || threads > 1024) {
    throw ValueError(name() + ": def_cuda_source: blocks of " + std::to_string(threads) +
                     " threads: wanted 1 to 1024");
  }
  rules().cuda_kernel = [source = std::move(source), kernel = std::move(kernel), threads,
                         primitive = name()](const KernelArgs& k) {
    run_cuda_source(primitive, source, kernel, threads, k);
  };
  return *this;
}

Arrays Primitive::bind_all(Arrays operands, const Params& params, SourceLine source) const {
  ensure_started();
  seal(*primitive_);
  const shmap::Primitive& p = primitive_->primitive;
  const ExtendRules& rules = primitive_->rules;
  for (const Array& x : operands) checked_node(x, p.name, source);
  const ExtendParams made = at_caller(
      source, [&] { return ExtendParams(primitive_, all_params(*primitive_, params, false)); });
  if (!p.abstract_eval) {
    // Without abstract_eval there are no types: only an eager run of the impl is possible.
    Trace& trace = current_trace();
    if (rules.impl && !trace.staged() && !trace.transforms())
      return rules.impl(std::move(operands), made.values);
    throw TypeError(primitive_->name +
                    " has no def_abstract_eval, which is needed here: give it one with "
                    ".def_abstract_eval" +
                    at_line(source));
  }
  at_caller(source, [&] { prepare_user_operands(p, made, operands); });
  return shmap::bind_all(p, operands, made, source);
}

Array Primitive::bind_each(std::initializer_list<Operand*> operands, SourceLine source) const {
  Arrays in;
  for (Operand* x : operands) in.push_back(std::move(x->value));
  return bind_one(std::move(in), {}, source);
}

Array Primitive::bind_one(Arrays operands, const Params& params, SourceLine source) const {
  Arrays results = bind_all(std::move(operands), params, source);
  if (results.size() != 1) {
    throw TypeError(primitive_->name + ": bind gives one result, and it has " +
                    std::to_string(results.size()) + ": use bind_all" + at_line(source));
  }
  return std::move(results[0]);
}

}  // namespace extend
}  // namespace shmap
