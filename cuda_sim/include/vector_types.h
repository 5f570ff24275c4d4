// The vector types of CUDA C++: plain structs with the toolkit's names, members and alignments.
#pragma once

#define SHMAP_SIM_VECTOR_TYPES(name, type, align2, align4) \
  struct name##1 {                                         \
    type x;                                                \
  };                                                       \
  struct alignas(align2) name##2 {                         \
    type x, y;                                             \
  };                                                       \
  struct name##3 {                                         \
    type x, y, z;                                          \
  };                                                       \
  struct alignas(align4) name##4 {                         \
    type x, y, z, w;                                       \
  };

SHMAP_SIM_VECTOR_TYPES(char, signed char, 2, 4)
SHMAP_SIM_VECTOR_TYPES(uchar, unsigned char, 2, 4)
SHMAP_SIM_VECTOR_TYPES(short, short, 4, 8)
SHMAP_SIM_VECTOR_TYPES(ushort, unsigned short, 4, 8)
SHMAP_SIM_VECTOR_TYPES(int, int, 8, 16)
SHMAP_SIM_VECTOR_TYPES(uint, unsigned int, 8, 16)
SHMAP_SIM_VECTOR_TYPES(longlong, long long, 16, 16)
SHMAP_SIM_VECTOR_TYPES(ulonglong, unsigned long long, 16, 16)
SHMAP_SIM_VECTOR_TYPES(float, float, 8, 16)
SHMAP_SIM_VECTOR_TYPES(double, double, 16, 16)

#undef SHMAP_SIM_VECTOR_TYPES

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
      : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
