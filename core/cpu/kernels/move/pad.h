// lax.pad (core/base/padding.h).
#pragma once
#include <cstdint>

#include "core/base/padding.h"

namespace shmap::cpu {

struct Pad : Padding {
  const void* src = nullptr;
  const void* value = nullptr;  // one item
  void* dst = nullptr;
};

void pad(const Pad& p);
int pad_parts(const Pad& p, int workers);
void pad_part(const Pad& p, int part, int parts);

}  // namespace shmap::cpu
