// extend::Primitive, with which users make primitives, and the table of users' primitives.
#include "core/base/counted.h"
#include "shmap/extend.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <typeinfo>

#include "core/device/device_kinds.h"
#include "core/device/runtime.h"
#include "core/extend/cuda_source.h"
#include "core/extend/param_reader.h"
#include "core/extend/user_primitive.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/runtime/kernel.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

using detail::ExtendPrimitive;
using detail::ExtendRules;
using extend::Arrays;

// All primitives of users; never destroyed.
struct Users {
  std::mutex mutex;
  std::vector<std::unique_ptr<ExtendPrimitive>> made;
};
Users& users() {
  static auto& all = *new Users;
  return all;
}

// Returns the value of a declared parameter, converted to the type of its default: an integer to a
// float, an empty list to an empty list of another type, lists of two to pairs.
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

// Returns all parameters: the given ones, checked against def_params, and the defaults of the
// others.
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

// Adds the caller's line to the errors of `f`. Those of types that users derived stay as they are.
template <class F>
auto at_caller(SourceLine source, F f) {
  const auto rethrow = [source]<class E>(const E& e) {
    if (typeid(e) != typeid(E)) throw;
    throw E(e.what() + at_line_once(e.what(), source));
  };
  try {
    return f();
  } catch (const ValueError& e) {
    rethrow(e);
    throw;
  } catch (const TypeError& e) {
    rethrow(e);
    throw;
  }
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

std::shared_ptr<const Params> make_user_params(ExtendPrimitive& p, const extend::Params& given,
                                               ReadScope& scope) {
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
  const auto& made = params_as<ExtendParams>(params);
  check_sharding(*made.primitive, operands, made);
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
                  " cannot be called with " + counted(operands, "operand") +
                  ", one by one or as a std::vector: see shmap/extend/primitive.h");
}

}  // namespace detail

namespace extend {

Primitive::Primitive(std::string name, SourceLine source) {
  if (name.empty()) throw ValueError("extend::Primitive: the name is empty" + at_line(source));
  Users& all = users();
  std::lock_guard lock(all.mutex);
  primitive_ = all.made.emplace_back(std::make_unique<ExtendPrimitive>(std::move(name))).get();
}

const std::string& Primitive::name() const { return primitive_->name; }

ExtendRules& Primitive::rules(SourceLine source) {
  if (primitive_->bound.load(std::memory_order_acquire)) {
    throw Error(primitive_->name +
                ": a rule was given after the first bind: give all of them before" +
                at_line(source));
  }
  return primitive_->rules;
}

Primitive& Primitive::def_params(Params defaults, SourceLine source) {
  for (const auto& [key, value] : defaults) {
    const auto is_plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (key.empty() || !std::all_of(key.begin(), key.end(), is_plain)) {
      throw ValueError(name() + ": def_params: the name '" + key +
                       "' is not made of letters, digits and '_'" + at_line(source));
    }
  }
  rules(source).defaults = std::move(defaults);
  return *this;
}

Primitive& Primitive::def_print(std::function<std::string(const Params&)> f, SourceLine source) {
  rules(source).print = std::move(f);
  return *this;
}

Primitive& Primitive::def_cuda_source(std::string source, std::string kernel, int threads,
                                      SourceLine line) {
  if (kernel.empty() || source.find(kernel) == std::string::npos)
    throw ValueError(name() + ": def_cuda_source: the source has no '" + kernel + "'" +
                     at_line(line));
  if (threads < 1 || threads > 1024) {
    throw ValueError(name() + ": def_cuda_source: blocks of " + std::to_string(threads) +
                     " threads: wanted 1 to 1024" + at_line(line));
  }
  rules(line).cuda_kernel = [source = std::move(source), kernel = std::move(kernel), threads,
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
  return at_caller(source, [&] { return shmap::bind_all(p, operands, made, source); });
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
