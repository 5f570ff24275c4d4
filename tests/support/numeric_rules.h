// Compares derivatives by rules with derivatives by numbers, to test the rules of every family.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shmap/array.h"

namespace shmap::testing {

using Arrays = std::vector<Array>;
using ArrayFn = std::function<Arrays(const Arrays&)>;

// A function at a point. Operands of dtype f64 are differentiated, others are passed on; `f` is
// called with the former in other float dtypes too, and keeps dtypes.
struct RuleCase {
  std::string name;
  ArrayFn f;
  Arrays at;
  // The tolerance of finite differences, relative to the greatest value.
  double tolerance = 1e-6;
  // Order 2 also differentiates the derivative and its transpose.
  int order = 2;
  // The tolerance of f32 and half types against f64, in units of their epsilon.
  double low_precision = 32;
  // Must be false if some result does not vary over devices when one operand does: the checks in a
  // shard_map body assume that all do.
  bool in_bodies = true;
};

// Jv of f at `at` along v (of the f64 operands, in order; an empty one: zero), for its floating
// results in order: by jvp, and by linearize. And J^T w, of the f64 operands.
Arrays jvp_values(const ArrayFn& f, const Arrays& at, const Arrays& v);
Arrays linear_values(const ArrayFn& f, const Arrays& at, const Arrays& v);
Arrays vjp_values(const ArrayFn& f, const Arrays& at, const Arrays& w);

// Returns what is wrong with the derivatives at this point, or "": in f64 jvp against central
// differences, linearize against jvp, <Jv, w> against <v, J^T w>, for each operand alone and for
// all together, types, symbolic zeros; in f32, f16 and bf16 against f64; and all of this inside of
// a shard_map body, where all operands vary over devices, or only one does.
std::string check_rules(const RuleCase& c);

// Elements of [lo, hi), the same for the same seed; no two are nearer than about (hi - lo) / size.
Array spread_values(std::uint32_t seed, const Shape& shape, double lo, double hi);

}  // namespace shmap::testing
