// Parameters of a primitive from named values, for programs that are written by hand or read from a
// text: the way back from Params::visit. Each primitive has its syntax: how many operands it takes,
// and a function that makes its parameters of the values and checks what its rules take for
// granted.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/jaxpr.h"
#include "shmap/extend/params.h"

namespace shmap {

// What programs inside and shardings are read in.
struct ReadScope {
  const detail::MeshImpl* mesh = nullptr;  // asked for by the caller, or met before
  bool from_text = false;                  // values are the texts that programs print
  Types results = {};                      // of the equation that is read, where a text says them
};

// The value of such a text: 3, 0.5, True, 'a', (0, 1), ('i',), ((0, 1),), (); any other is a word.
extend::ParamValue value_of_text(std::string_view text);
// 'a' or "a" with its escapes taken out; nothing where it is not one whole quoted text.
bool read_quoted(std::string_view text, std::string* out);

// Getters throw ValueError where a name is missing, and TypeError where its value has another type;
// both name the primitive. Texts are taken for what they say: "(0, 1)" is a list of integers.
class ParamReader {
 public:
  ParamReader(const char* primitive, const extend::Params& given, Types operands, ReadScope& scope)
      : primitive_(primitive), given_(given), operands_(operands), scope_(scope) {}

  Types operands() const { return operands_; }
  const char* primitive() const { return primitive_; }
  ReadScope& scope() { return scope_; }

  bool has(std::string_view name) const { return given_.count(name) != 0; }
  std::int64_t integer(std::string_view name);
  int index(std::string_view name, std::int64_t limit);  // in [0, limit)
  bool flag(std::string_view name);
  DType dtype(std::string_view name);
  std::string text(std::string_view name);    // as it stands
  std::string quoted(std::string_view name);  // without the quotes that it may have
  Shape shape(std::string_view name);         // extents ≥ 0 whose product fits
  Dims dims(std::string_view name);
  std::vector<std::string> names(std::string_view name);
  extend::ParamValue::Pairs pairs(std::string_view name);
  extend::ParamValue::Groups groups(std::string_view name);
  JaxprRef program(std::string_view name);
  // One of these words.
  std::size_t choice(std::string_view name, const std::vector<std::string>& words);

  // ValueError where a name was given that nobody asked for.
  void finish() const;
  [[noreturn]] void fail(const std::string& problem) const;  // ValueError

 private:
  template <class T>
  T get(std::string_view name);
  const extend::ParamValue& find(std::string_view name);

  const char* primitive_;
  const extend::Params& given_;
  Types operands_;
  ReadScope& scope_;
  std::set<std::string, std::less<>> asked_;
};

using ReadParamsFn = std::shared_ptr<const Params> (*)(ParamReader&);
inline constexpr int kAnyNumber = 1 << 20;
struct ParamSyntax {
  int min_operands = 0, max_operands = kAnyNumber;
  ReadParamsFn read = nullptr;    // null: no parameters
  const char* refused = nullptr;  // why such an equation cannot be read
};
// Called when the library starts (register_…).
void set_param_syntax(const Primitive& primitive, ParamSyntax syntax);
const ParamSyntax* param_syntax(const Primitive& primitive);  // null where there is none

// The parameters of an equation on operands of these types, under the current trace. Throws what
// ParamReader does, and ValueError where the primitive takes another number of operands, or is
// refused.
std::shared_ptr<const Params> read_params(const Primitive& primitive, const extend::Params& given,
                                          Types operands, ReadScope& scope);

// The values of an equation's parameters.
extend::Params params_of(const Params& params);

// The parameters of a users' primitive (core/extend/primitive.cpp); null where it is the library's.
Primitive* find_user_primitive(std::string_view name);  // the one made last, ready to be bound
std::vector<std::string> user_primitive_names();
bool is_user_primitive(const Primitive& primitive);
std::shared_ptr<const Params> make_user_params(const Primitive& primitive,
                                               const extend::Params& given, ReadScope& scope);
// Null where they are not those of a users' primitive.
const extend::Params* user_params(const Params& params);
// Operands as the kernels of a users' primitive take them.
void prepare_user_operands(const Primitive& primitive, const Params& params,
                           std::vector<Array>& operands);

}  // namespace shmap
