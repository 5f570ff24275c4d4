// Programs inside of equations in the form in which they would run: simplified, fused, scheduled.
#pragma once
#include <optional>
#include <unordered_map>

#include "core/ir/jaxpr.h"
#include "core/runtime/rates.h"

namespace shmap {

class PreparedPrograms {
 public:
  explicit PreparedPrograms(const Rates& rates) : rates_(rates) {}
  // The prepared program. The reference is valid as long as this object.
  const Jaxpr& of(const Jaxpr& program);
  // How long the program takes alone, as simulate finds it out: at first nothing.
  std::optional<double>& us_alone(const Jaxpr& program) { return prepare(program).us_alone; }

 private:
  struct Prepared {
    JaxprRef asked;  // kept alive, so that no other program gets its address
    JaxprRef made;
    std::optional<double> us_alone;
  };
  Prepared& prepare(const Jaxpr& program);

  Rates rates_;
  std::unordered_map<const Jaxpr*, Prepared> programs_;
};

}  // namespace shmap
