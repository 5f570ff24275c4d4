// A primitive of a user's (extend::Primitive): its record, and the parameters of its equations.
#pragma once
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/ir/primitive.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/extend.h"

namespace shmap {

namespace detail {

// The primitive behind the handles of one name. Never destroyed, because programs and tasks refer
// to it.
class ExtendPrimitive {
 public:
  explicit ExtendPrimitive(std::string given) : name(std::move(given)) {
    primitive.name = name.c_str();
    primitive.user = this;
  }

  const std::string name;
  ExtendRules rules;
  Primitive primitive;
  std::once_flag sealed;
  std::atomic<bool> bound{false};

  // The operand types that are known to fit the sharding rule.
  std::mutex mutex;
  std::set<std::string> sharded;
};

}  // namespace detail

struct ExtendParams : ParamsOf<ExtendParams> {
  ExtendParams(detail::ExtendPrimitive* p, extend::Params v) : primitive(p), values(std::move(v)) {}
  detail::ExtendPrimitive* primitive;
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

// Gives the record its rules, which call the user's functions, at the first call. After that no
// rule may be added. Any thread.
void seal(detail::ExtendPrimitive& primitive);
// Checks the sharding rule at bind, so that a wrong rule is found there and not only when an array
// is split. Checks each list of operand types once.
void check_sharding(detail::ExtendPrimitive& primitive, const extend::Arrays& operands,
                    const ExtendParams& params);

}  // namespace shmap
