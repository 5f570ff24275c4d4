// The subscripts of an einsum, parsed: a label for each dim of its operands and of its result.
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
// "'i'", "dim -1 of the ellipsis": for error messages.
std::string label_name(EinsumLabel l);

// Parses subscripts for these operands, which must not be empty arrays. Errors are ValueErrors that
// begin with `what` and show the subscripts and their line.
class EinsumSpec {
 public:
  EinsumSpec(const char* what, Subscripts subscripts, const std::vector<Array>& operands);

  std::vector<EinsumLabels> inputs;  // a label for each dim of each operand
  EinsumLabels output;               // each label once; each is a label of some operand

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
