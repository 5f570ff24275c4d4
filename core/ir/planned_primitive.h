// Primitives that only optimisation passes create, so that they need no rules for transforms.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// A primitive named `name` without rules for transforms.
constexpr Primitive planned_primitive(const char* name) {
  constexpr const char* kLate =
      "only optimisation passes make it, and programs are transformed before these run";
  Primitive p;
  p.name = name;
  p.jvp = Rule<JvpFn>::none(kLate);
  p.transpose = Rule<TransposeFn>::none(kLate);
  p.batching = Rule<BatchFn>::none(kLate);
  return p;
}

}  // namespace shmap
