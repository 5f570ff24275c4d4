// make_float4() and its like.
#pragma once
#include "vector_types.h"

#define SHMAP_SIM_MAKE(name, type)                                                              \
  inline constexpr name##1 make_##name##1(type x) { return name##1 {x}; }                       \
  inline constexpr name##2 make_##name##2(type x, type y) { return name##2 {x, y}; }            \
  inline constexpr name##3 make_##name##3(type x, type y, type z) { return name##3 {x, y, z}; } \
  inline constexpr name##4 make_##name##4(type x, type y, type z, type w) {                     \
    return name##4 {x, y, z, w};                                                                \
  }

SHMAP_SIM_MAKE(char, signed char)
SHMAP_SIM_MAKE(uchar, unsigned char)
SHMAP_SIM_MAKE(short, short)
SHMAP_SIM_MAKE(ushort, unsigned short)
SHMAP_SIM_MAKE(int, int)
SHMAP_SIM_MAKE(uint, unsigned int)
SHMAP_SIM_MAKE(longlong, long long)
SHMAP_SIM_MAKE(ulonglong, unsigned long long)
SHMAP_SIM_MAKE(float, float)
SHMAP_SIM_MAKE(double, double)

#undef SHMAP_SIM_MAKE
