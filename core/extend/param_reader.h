// Makes a primitive's parameters from named values, for programs that are built by hand or parsed
// from text: the inverse of Params::visit. The syntax of a primitive (Primitive::syntax) says how
// many operands it takes, and has a function that reads the parameters and checks what the
// primitive's rules assume.
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

// The context in which parameters are read.
struct ReadScope {
  const detail::MeshImpl* mesh = nullptr;  // given by the caller, or found in the program so far
  bool from_text = false;                  // values are the texts that programs print
  Types results = {};                      // the result types of the equation, if the text has them
};

// The value of a printed parameter: 3, 0.5, True, 'a', (0, 1), ('i',), ((0, 1),), (); any other
// text is a word.
extend::ParamValue value_of_text(std::string_view text);
// 'a' or "a" without quotes and escapes; false where the text is not one quoted string.
bool read_quoted(std::string_view text, std::string* out);

// Getters throw ValueError where a name is missing, and TypeError where its value has another type;
// both name the primitive. A text is read as the value that it prints: "(0, 1)" is a list of
// integers.
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
  std::string text(std::string_view name);    // unchanged
  std::string quoted(std::string_view name);  // without quotes, if it has them
  Shape shape(std::string_view name);         // extents ≥ 0 whose product fits
  Dims dims(std::string_view name);
  std::vector<std::string> names(std::string_view name);
  extend::ParamValue::Pairs pairs(std::string_view name);
  extend::ParamValue::Groups groups(std::string_view name);
  JaxprRef program(std::string_view name);
  // The index of the value among these words; ValueError for any other.
  std::size_t choice(std::string_view name, const std::vector<std::string>& words);

  // ValueError where a name was given that no getter has read.
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

// The parameters of an equation with operands of these types, under the current trace. Throws the
// errors of ParamReader; ValueError where the primitive takes another number of operands, or cannot
// be read.
std::shared_ptr<const Params> read_params(const Primitive& primitive, const extend::Params& given,
                                          Types operands, ReadScope& scope);

// The values of an equation's parameters.
extend::Params params_of(const Params& params);

// The primitives of users (core/extend/primitive.cpp). find_user_primitive returns the latest one
// of that name, ready to be bound, or null if there is none.
Primitive* find_user_primitive(std::string_view name);
std::vector<std::string> user_primitive_names();
std::shared_ptr<const Params> make_user_params(detail::ExtendPrimitive& primitive,
                                               const extend::Params& given, ReadScope& scope);
// Returns the parameters of a user's primitive, or null for those of another primitive.
const extend::Params* user_params(const Params& params);
// Converts operands to the form that the kernels of a user's primitive take.
void prepare_user_operands(const Primitive& primitive, const Params& params,
                           std::vector<Array>& operands);

}  // namespace shmap
