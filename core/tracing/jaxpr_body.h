// JaxprBody: a program with values for its constants, as a function of the remaining arguments.
#pragma once
#include <span>
#include <vector>

#include "core/ir/jaxpr.h"
#include "shmap/flat_call.h"

namespace shmap {

class JaxprBody {
 public:
  JaxprBody(const Jaxpr& jaxpr, std::span<const Array> consts) : jaxpr_(jaxpr), consts_(consts) {}
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;

 private:
  const Jaxpr& jaxpr_;
  std::span<const Array> consts_;
};

}  // namespace shmap
