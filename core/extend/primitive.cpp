// Users' primitives: each is a Primitive whose rules call the functions that were given.
#include "shmap/extend.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "core/device/runtime.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/rules.h"
#include "core/runtime/kernel.h"
#include "core/transforms/lower.h"
#include "core/transforms/make_jaxpr.h"
#include "shmap/make_jaxpr.h"
#include "shmap/ops.h"

namespace shmap {

namespace detail {

// Made once for each name that a user gives, and never destroyed: programs and their tasks name it.
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
  explicit ExtendParams(ExtendPrimitive* p) : primitive(p) {}
  ExtendPrimitive* primitive;
};

ExtendPrimitive& primitive_of(const Params& params) {
  return *params_as<ExtendParams>(params).primitive;
}
const ExtendRules& rules_of(const Params& params) { return primitive_of(params).rules; }

[[noreturn]] void throw_count(const Params& params, const char* rule, const char* what,
                              std::size_t given, std::size_t wanted) {
  throw TypeError(primitive_of(params).name + ": its " + rule + " gave " + std::to_string(given) +
                  " " + what + ", and " + std::to_string(wanted) + " are wanted");
}

ArrayTypes result_types(Types in, const Params& params) {
  ArrayTypes plain;
  for (const ShapedArray& t : in) plain.emplace_back(t.dims(), t.dtype(), t.weak(), AxisSet());
  return rules_of(params).abstract_eval(std::move(plain));
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

template <DeviceKind kind>
void run_kernel_of(const KernelCall& call) {
  const ExtendPrimitive& p = primitive_of(call.params);
  if (kind == DeviceKind::cuda && call.literals != 0) {
    throw DeviceError(p.name +
                      ": a host scalar came to its CUDA kernel: pass an array of shape ()");
  }
  extend::KernelArgs args;
  args.in = call.in;
  args.out = call.out;
  args.in_types = call.in_types;
  args.out_types = call.out_types;
  args.stream = call.native;
  (kind == DeviceKind::cpu ? p.rules.cpu_kernel : p.rules.cuda_kernel)(args);
}

// What def_impl gives has to be what def_abstract_eval promised, and may vary over what operands
// vary over: programs and plans have these types, and give results memory of their size.
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
  Arrays results = rules_of(params).impl(Arrays(in.begin(), in.end()));
  ArrayTypes given, promised = result_types(types, params);
  for (const Array& x : results) given.push_back(checked_node(x, "def_impl", source).type);
  for (ShapedArray& t : promised) t = t.with_axes(axes);
  check_results(params, given, promised, source);
  for (std::size_t o = 0; o < results.size(); ++o)
    out[o] = current_trace().vary(results[o], axes, source);
}

// Neither a kernel nor an impl: it can be traced, and not run.
void interpret_nothing(std::span<Array>, const Params& params, std::span<Array>,
                       SourceLine source) {
  throw TypeError(
      primitive_of(params).name + " has neither a def_impl nor a kernel for the backend '" +
      runtime().backend().name() + "', so that it can be traced but not run" + at_line(source));
}
void lower_nothing(LowerCall& call) { interpret_nothing({}, call.params, {}, call.source); }

// The program of the impl takes the equation's place.
void lower_impl(LowerCall& call) {
  Arrays arguments;
  for (const LowerValue& x : call.in) arguments.push_back(Array::first(new TypeNode(x.type)));
  const ClosedJaxpr program =
      make_jaxpr([&](Arrays in) { return rules_of(call.params).impl(std::move(in)); })(arguments);
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
  auto [y, y_dot] = rules_of(call.params).jvp(std::move(primals), std::move(tangents));
  if (y.size() != call.out.size())
    throw_count(call.params, "def_jvp", "results", y.size(), call.out.size());
  if (y_dot.size() != call.out.size())
    throw_count(call.params, "def_jvp", "tangents", y_dot.size(), call.out.size());
  std::move(y.begin(), y.end(), call.out.begin());
  std::move(y_dot.begin(), y_dot.end(), call.tangents_out.begin());
}

void transpose_of(TransposeCall& call) {
  Arrays cotangents;
  for (std::size_t o = 0; o < call.cotangents.size(); ++o)
    cotangents.push_back(or_zeros(call.cotangents[o], call.out_types[o], call.source));
  Arrays bars = rules_of(call.params)
                    .transpose(std::move(cotangents), Arrays(call.in.begin(), call.in.end()));
  if (bars.size() != call.in.size())
    throw_count(call.params, "def_transpose", "cotangents", bars.size(), call.in.size());
  for (std::size_t i = 0; i < bars.size(); ++i)
    if (call.is_linear(i)) call.out[i] = std::move(bars[i]);
}

void batch_of(BatchCall& call) {
  auto [y, dims] = rules_of(call.params)
                       .batching(Arrays(call.in.begin(), call.in.end()),
                                 std::vector<int>(call.dims.begin(), call.dims.end()));
  if (y.size() != call.out.size() || dims.size() != call.out.size())
    throw_count(call.params, "def_batching", "results and dims", std::min(y.size(), dims.size()),
                call.out.size());
  std::move(y.begin(), y.end(), call.out.begin());
  std::copy(dims.begin(), dims.end(), call.out_dims.begin());
}

// "ab,bc->ac" against the types: ValueError where it does not fit.
class RuleText {
 public:
  RuleText(const std::string& name, const std::string& text) : name_(name), text_(text) {}

  FactorRule parse(Types in, Types out) {
    const std::size_t arrow = text_.find("->");
    if (arrow == std::string::npos) fail("has no '->'");
    FactorRule rule;
    rule.operands = side(text_.substr(0, arrow), in, rule, "operands");
    rule.results = side(text_.substr(arrow + 2), out, rule, "results");
    for (auto& [letter, at] : factors_) {
      bool in_result = false;
      for (const auto& result : rule.results)
        for (const auto& dim : result) in_result = in_result || dim[0] == at;
      if (!in_result) rule.factors[static_cast<std::size_t>(at)].kind = FactorKind::blocked;
    }
    return rule;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ValueError(name_ + ": the sharding rule \"" + text_ + "\" " + why +
                     ": it is written as \"ab,bc->ac\", with a letter a dim");
  }
  std::vector<std::vector<std::vector<int>>> side(const std::string& text, Types types,
                                                  FactorRule& rule, const char* what) {
    std::vector<std::vector<std::vector<int>>> out(1);
    for (char c : text) {
      if (c == ',') {
        out.emplace_back();
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        const auto [it, fresh] = factors_.emplace(c, static_cast<int>(rule.factors.size()));
        if (fresh) rule.factors.emplace_back();
        out.back().push_back({it->second});
      } else if (c != ' ') {
        fail(std::string("holds '") + c + "'");
      }
    }
    if (out.size() != types.size())
      fail("has " + std::to_string(out.size()) + " " + what + ", and there are " +
           std::to_string(types.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      // A host scalar stands for an array of its value.
      if (types[i].rank() == 0 && types[i].weak()) out[i].clear();
      if (out[i].size() != static_cast<std::size_t>(types[i].rank()))
        fail("gives " + std::to_string(out[i].size()) + " dims to a value of type " +
             to_string(types[i]));
      for (std::size_t d = 0; d < out[i].size(); ++d) {
        Factor& factor = rule.factors[static_cast<std::size_t>(out[i][d][0])];
        const std::int64_t extent = types[i].dims()[d];
        if (extent == 1 && factor.size != 1) {
          out[i][d].clear();  // broadcast
        } else if (factor.size == 1) {
          factor.size = extent;
        } else if (factor.size != extent) {
          fail("gives one letter to dims of " + std::to_string(factor.size) + " and " +
               std::to_string(extent));
        }
      }
    }
    return out;
  }
  const std::string &name_, &text_;
  std::map<char, int> factors_;
};

FactorRule sharding_of(Types in, const Params& params, Types out) {
  const ExtendPrimitive& p = primitive_of(params);
  const std::string text =
      p.rules.sharding(ArrayTypes(in.begin(), in.end()), ArrayTypes(out.begin(), out.end()));
  return RuleText(p.name, text).parse(in, out);
}

// Whether the sharding rule fits is said where it is wrong, not first where an array is split.
void check_sharding(ExtendPrimitive& p, const Arrays& operands) {
  if (!p.rules.calls_sharding) return;
  ArrayTypes in;
  std::string key;
  for (const Array& x : operands) {
    const ShapedArray& t = node_of(x)->type;
    in.emplace_back(t.dims(), t.dtype(), t.weak(), AxisSet());
    key += to_string(t) + " ";
  }
  std::lock_guard lock(p.mutex);
  if (p.sharded.count(key)) return;
  const ExtendParams params(&p);
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

}  // namespace

namespace detail {

void throw_unusable_rule(const char* rule, std::size_t operands) {
  throw TypeError(std::string(rule) + ": the function that was given to it cannot be called with " +
                  std::to_string(operands) +
                  " operands, one by one or as a std::vector: see shmap/extend.h");
}

}  // namespace detail

namespace extend {

Primitive::Primitive(std::string name) {
  if (name.empty()) throw ValueError("extend::Primitive: the name is empty");
  static std::mutex mutex;
  static auto& all = *new std::vector<std::unique_ptr<ExtendPrimitive>>;  // never destroyed
  std::lock_guard lock(mutex);
  primitive_ = all.emplace_back(std::make_unique<ExtendPrimitive>(std::move(name))).get();
}

const std::string& Primitive::name() const { return primitive_->name; }

ExtendRules& Primitive::rules() {
  if (primitive_->bound.load(std::memory_order_acquire)) {
    throw Error(primitive_->name +
                ": a rule was given after the first bind: give all of them before");
  }
  return primitive_->rules;
}

Arrays Primitive::bind_all(Arrays operands, SourceLine source) const {
  ensure_started();
  seal(*primitive_);
  const shmap::Primitive& p = primitive_->primitive;
  const ExtendRules& rules = primitive_->rules;
  for (const Array& x : operands) checked_node(x, p.name, source);
  const bool has_kernel = static_cast<bool>(p.kernel(runtime().backend().kind()).run);
  if (!p.abstract_eval) {
    // Without types nothing but a run of the impl on values is possible.
    Trace& trace = current_trace();
    if (rules.impl && !trace.staged() && !trace.transforms())
      return rules.impl(std::move(operands));
    throw TypeError(primitive_->name + " has no def_abstract_eval, which is wanted here" +
                    at_line(source));
  }
  check_sharding(*primitive_, operands);
  if (has_kernel && runtime().backend().kind() == DeviceKind::cuda) {
    // A kernel reads device memory alone.
    for (Array& x : operands)
      if (node_of(x)->kind == NodeKind::literal) x = full({}, x);
  }
  return shmap::bind_all(p, operands, ExtendParams(primitive_), source);
}

Array Primitive::bind_each(std::initializer_list<Operand*> operands, SourceLine source) const {
  Arrays in;
  for (Operand* x : operands) in.push_back(std::move(x->value));
  return bind_one(std::move(in), source);
}

Array Primitive::bind_one(Arrays operands, SourceLine source) const {
  Arrays results = bind_all(std::move(operands), source);
  if (results.size() != 1) {
    throw TypeError(primitive_->name + ": bind gives one result, and it has " +
                    std::to_string(results.size()) + ": use bind_all" + at_line(source));
  }
  return std::move(results[0]);
}

}  // namespace extend
}  // namespace shmap
