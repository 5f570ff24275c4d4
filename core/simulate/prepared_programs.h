// Programs inside of equations, as they would run: simplified, fused, scheduled.
#pragma once
#include <unordered_map>

#include "core/ir/jaxpr.h"
#include "core/runtime/rates.h"

namespace shmap {

// What an equation does to memory.
bool is_view(const Eqn& e);

class PreparedPrograms {
 public:
  explicit PreparedPrograms(const Rates& rates) : rates_(rates) {}
  // Lives as long as this object.
  const Jaxpr& of(const Jaxpr& program);

 private:
  struct Prepared {
    JaxprRef asked;  // kept alive, so that its address stays its own
    JaxprRef made;
  };
  Rates rates_;
  std::unordered_map<const Jaxpr*, Prepared> programs_;
};

}  // namespace shmap
