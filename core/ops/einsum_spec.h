// The subscripts of an einsum: what each dim of its operands and of its result is called.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "shmap/array.h"
#include "shmap/ops.h"

namespace shmap {

// A dim's name: a letter, or a dim of the ellipsis counted from the last (-1, -2 …).
using EinsumLabel = int;
using EinsumLabels = std::vector<EinsumLabel>;

bool has_label(const EinsumLabels& labels, EinsumLabel l);
// "'i'", "dim -1 of the ellipsis": for texts.
std::string label_name(EinsumLabel l);

// Of operands that are arrays, not empty. Errors are ValueErrors of `what`, with the subscripts and
// their line.
class EinsumSpec {
 public:
  EinsumSpec(const char* what, Subscripts subscripts, const std::vector<Array>& operands);

  std::vector<EinsumLabels> inputs;  // a name for each dim of each operand
  EinsumLabels output;               // no name is twice, and each is some operand's

  [[noreturn]] void fail(const std::string& why) const;

 private:
  void parse(const std::vector<Array>& operands);
  EinsumLabels labels_of(const std::string& part, int rank, const std::string& what) const;
  void imply_output();

  const char* what_;
  std::string_view text_;
  SourceLine source_;
};

}  // namespace shmap
