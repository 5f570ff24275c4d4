#include "core/ops/einsum_spec.h"

#include <algorithm>
#include <map>

#include "core/base/counted.h"
#include "core/base/printable.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

using Label = EinsumLabel;
using Labels = EinsumLabels;

bool has_label(const Labels& labels, Label l) {
  return std::find(labels.begin(), labels.end(), l) != labels.end();
}

std::string label_name(Label l) {
  return l < 0 ? "dim " + std::to_string(l) + " of the ellipsis"
               : std::string("'") + static_cast<char>(l) + "'";
}

EinsumSpec::EinsumSpec(const char* what, Subscripts subscripts, const std::vector<Array>& operands)
    : what_(what), text_(subscripts.text), source_(subscripts.source) {
  parse(operands);
}

void EinsumSpec::parse(const std::vector<Array>& operands) {
  std::string clean;
  for (char c : text_)
    if (c != ' ') clean += c;
  const std::size_t arrow = clean.find("->");
  const std::string left = clean.substr(0, arrow);
  std::size_t begin = 0;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i <= left.size(); ++i) {
    if (i < left.size() && left[i] != ',') continue;
    parts.push_back(left.substr(begin, i - begin));
    begin = i + 1;
  }
  if (parts.size() != operands.size()) {
    fail("they name " + counted(parts.size(), "operand") + ", and " +
         std::to_string(operands.size()) + (operands.size() == 1 ? " was given" : " were given"));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int rank = operands[i].ndim();
    inputs.push_back(labels_of(parts[i], rank, "operand " + std::to_string(i)));
    if (static_cast<int>(inputs.back().size()) != rank) {
      fail("operand " + std::to_string(i) + " of type " + to_string(operands[i].type()) + " has " +
           counted(rank, "dim") + ", and \"" + printable(parts[i]) + "\" names " +
           std::to_string(inputs.back().size()));
    }
  }
  if (arrow == std::string::npos) return imply_output();
  int ellipsis = 0;
  for (const Labels& in : inputs)
    ellipsis = std::max(ellipsis, static_cast<int>(std::count_if(in.begin(), in.end(),
                                                                 [](Label l) { return l < 0; })));
  const std::string out = clean.substr(arrow + 2);
  const int letters =
      static_cast<int>(std::count_if(out.begin(), out.end(), [](char c) { return c != '.'; }));
  output = labels_of(out, out.find('.') == std::string::npos ? letters : letters + ellipsis,
                     "the output");
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (std::count(output.begin(), output.end(), output[i]) > 1)
      fail(label_name(output[i]) + " is twice in the output");
    const bool known = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const Labels& in) { return has_label(in, output[i]); });
    if (!known) fail(label_name(output[i]) + " is in the output and in no operand");
  }
}

void EinsumSpec::fail(const std::string& why) const {
  throw ValueError(std::string(what_) + "(\"" + printable(text_, 200) + "\"): " + why +
                   at_line(source_));
}

EinsumLabels EinsumSpec::labels_of(const std::string& part, int rank,
                                   const std::string& what) const {
  Labels labels;
  const std::size_t dots = part.find("...");
  const int letters = static_cast<int>(part.size()) - (dots == std::string::npos ? 0 : 3);
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (i == dots) {
      for (int d = rank - letters; d > 0; --d) labels.push_back(-d);
      i += 2;
    } else if ((part[i] >= 'a' && part[i] <= 'z') || (part[i] >= 'A' && part[i] <= 'Z')) {
      labels.push_back(part[i]);
    } else {
      fail("the character '" + printable({&part[i], 1}) + "' of " + what +
           " is not a letter: name each dim by a letter, and the dims that have no letter by ...");
    }
  }
  return labels;
}

// Without "->": the ellipsis, then the letters that come once, in alphabetical order.
void EinsumSpec::imply_output() {
  std::map<Label, int> times;
  for (const Labels& in : inputs)
    for (Label l : in) ++times[l];
  for (const auto& [l, n] : times)
    if (l < 0 || n == 1) output.push_back(l);
}

}  // namespace shmap
