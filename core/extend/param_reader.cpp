#include "core/extend/param_reader.h"

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/ir/trace.h"

namespace shmap {

const extend::ParamValue& ParamReader::find(std::string_view name) {
  asked_.emplace(name);
  const auto it = given_.find(name);
  if (it == given_.end()) {
    throw ValueError(std::string(primitive_) + ": the parameter '" + std::string(name) +
                     "' is missing" +
                     (given_.empty() ? "" : ": given are " + extend::to_string(given_)));
  }
  return it->second;
}

template <class T>
T ParamReader::get(std::string_view name) {
  const extend::ParamValue& given = find(name);
  T value{};
  if (given.read(value)) return value;
  if (const auto* text = std::get_if<std::string>(&given.variant()))
    if (value_of_text(*text).read(value)) return value;
  extend::throw_param_type(primitive_, name, given, extend::param_type_name<T>(), {});
}

std::int64_t ParamReader::integer(std::string_view name) { return get<std::int64_t>(name); }
bool ParamReader::flag(std::string_view name) { return get<bool>(name); }
DType ParamReader::dtype(std::string_view name) { return get<DType>(name); }
std::vector<std::string> ParamReader::names(std::string_view name) {
  return get<std::vector<std::string>>(name);
}
extend::ParamValue::Groups ParamReader::groups(std::string_view name) {
  return get<extend::ParamValue::Groups>(name);
}

int ParamReader::index(std::string_view name, std::int64_t limit) {
  const std::int64_t v = integer(name);
  if (v < 0 || v >= limit) {
    fail("'" + std::string(name) + "' is " + std::to_string(v) + ": wanted 0 to " +
         std::to_string(limit - 1));
  }
  return static_cast<int>(v);
}

std::string ParamReader::text(std::string_view name) {
  const extend::ParamValue& given = find(name);
  if (const auto* text = std::get_if<std::string>(&given.variant())) return *text;
  return extend::to_string(given);
}

std::string ParamReader::quoted(std::string_view name) {
  const std::string whole = text(name);
  std::string inside;
  if (read_quoted(whole, &inside)) return inside;
  if (scope_.from_text) fail("'" + std::string(name) + "' is not a text in quotes");
  return whole;
}

Dims ParamReader::dims(std::string_view name) { return Dims(get<std::vector<std::int64_t>>(name)); }

Shape ParamReader::shape(std::string_view name) {
  const Shape shape(get<std::vector<std::int64_t>>(name));
  for (std::int64_t e : shape)
    if (e < 0) fail("'" + std::string(name) + "' has an extent of " + std::to_string(e));
  shape.num_elements();
  return shape;
}

extend::ParamValue::Pairs ParamReader::pairs(std::string_view name) {
  const extend::ParamValue& given = find(name);
  extend::ParamValue::Pairs pairs;
  if (given.read(pairs)) return pairs;
  for (const std::vector<int>& pair : groups(name)) {
    if (pair.size() != 2) {
      fail("'" + std::string(name) + "' has an entry of " + std::to_string(pair.size()) +
           " numbers, and pairs are wanted");
    }
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

JaxprRef ParamReader::program(std::string_view name) {
  const extend::ParamValue& given = find(name);
  const auto* program = std::get_if<ClosedJaxpr>(&given.variant());
  if (!program) extend::throw_param_type(primitive_, name, given, "a program", {});
  if (!program->consts().empty()) {
    throw TypeError(std::string(primitive_) + ": the program '" + std::string(name) +
                    "' closes over arrays: make them operands");
  }
  return program->impl().jaxpr;
}

std::size_t ParamReader::choice(std::string_view name, const std::vector<std::string>& words) {
  const std::string word = text(name);
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return i;
    list += (i ? ", " : "") + words[i];
  }
  fail("'" + std::string(name) + "' is " + word + did_you_mean(word, words) + ": wanted one of " +
       list);
}

void ParamReader::finish() const {
  for (const auto& [name, value] : given_) {
    if (asked_.count(name)) continue;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    throw ValueError(std::string(primitive_) + ": there is no parameter '" + name + "'" +
                     did_you_mean(name, known) +
                     (list.empty() ? ": it has none" : ": it has " + list));
  }
}

void ParamReader::fail(const std::string& problem) const {
  throw ValueError(std::string(primitive_) + ": the parameter " + problem);
}

std::shared_ptr<const Params> read_params(const Primitive& primitive, const extend::Params& given,
                                          Types operands, ReadScope& scope) {
  if (primitive.user) return make_user_params(*primitive.user, given, scope);
  const ParamSyntax& syntax = primitive.syntax;
  if (syntax.refused) {
    throw ValueError(std::string(primitive.name) +
                     ": an equation of it cannot be made: " + syntax.refused);
  }
  const auto count = static_cast<int>(std::min<std::size_t>(operands.size(), kAnyNumber));
  if (count < syntax.min_operands || count > syntax.max_operands) {
    const std::string least = std::to_string(syntax.min_operands);
    throw ValueError(std::string(primitive.name) + ": " + counted(operands.size(), "operand") +
                     ", and it takes " +
                     (syntax.max_operands == syntax.min_operands ? least
                      : syntax.max_operands == kAnyNumber
                          ? least + " or more"
                          : least + " to " + std::to_string(syntax.max_operands)));
  }
  ParamReader reader(primitive.name, given, operands, scope);
  static const std::shared_ptr<const Params> none(std::shared_ptr<const Params>(), &no_params);
  std::shared_ptr<const Params> params = syntax.read ? syntax.read(reader) : none;
  reader.finish();
  return params;
}

}  // namespace shmap
