// The syntax of a printed program, without its meaning: names, texts and their positions.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/dtype.h"

namespace shmap {

struct TextPosition {
  int line = 1, column = 1;
};
std::string to_string(TextPosition place);  // "line 3, column 7"

struct TypeText {
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::string> axes;
  TextPosition place;
};
struct BinderText {
  std::string name;
  TypeText type;
  TextPosition place;
};
struct AtomText {
  std::string text;  // a variable's name, or a literal
  std::optional<TypeText> type;
  TextPosition place;
};
struct JaxprText;
struct ParamValueText {
  std::string name, text;
  std::unique_ptr<JaxprText> program;  // for a program as a value; `text` is empty then
  TextPosition place;
};
struct EqnText {
  std::vector<BinderText> results;
  std::string primitive;
  std::vector<ParamValueText> params;
  std::vector<AtomText> operands;
  TextPosition place;
};
struct JaxprText {
  std::vector<BinderText> binders;
  std::vector<EqnText> eqns;
  std::vector<AtomText> outs;
  TextPosition place;
};

// ValueError with line and column where the text is not a program. Programs may be nested 100 deep.
JaxprText parse_jaxpr_text(std::string_view text);

}  // namespace shmap
