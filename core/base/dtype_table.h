// The table of dtypes, from which printed names, the names in file formats and the switches over
// dtypes are generated. The public header <shmap/dtype.h> spells the enumeration and the sizes out,
// for its readers; a row that disagrees with that header does not compile.
#pragma once
#include <cstdint>
#include <type_traits>

#include "shmap/dtype.h"
#include "shmap/half.h"

// The rows are in four lists, by kind of dtype. The columns are: the enumerator, the C++ type of an
// element, the name in jaxprs, NumPy's name, the type string of .npy files, and the name in
// .safetensors files (nullptr: these files cannot hold the dtype). Rows of floats also have the
// number of stored mantissa bits (core/base/float_format.h).
// clang-format off
#define SHMAP_SIGNED_DTYPES(X) \
  X(i8,  std::int8_t,  "i8",  "int8",  "|i1", "I8")  \
  X(i16, std::int16_t, "i16", "int16", "<i2", "I16") \
  X(i32, std::int32_t, "i32", "int32", "<i4", "I32") \
  X(i64, std::int64_t, "i64", "int64", "<i8", "I64")
#define SHMAP_UNSIGNED_DTYPES(X) \
  X(u8,  std::uint8_t,  "u8",  "uint8",  "|u1", "U8")  \
  X(u16, std::uint16_t, "u16", "uint16", "<u2", "U16") \
  X(u32, std::uint32_t, "u32", "uint32", "<u4", "U32") \
  X(u64, std::uint64_t, "u64", "uint64", "<u8", "U64")
#define SHMAP_FLOAT_DTYPES(X) \
  X(f16,  float16,  "f16",  "float16",  "<f2", "F16",  10) \
  X(bf16, bfloat16, "bf16", "bfloat16", "<V2", "BF16", 7)  \
  X(f32,  float,    "f32",  "float32",  "<f4", "F32",  23) \
  X(f64,  double,   "f64",  "float64",  "<f8", "F64",  52)
#define SHMAP_INTEGER_DTYPES(X) SHMAP_SIGNED_DTYPES(X) SHMAP_UNSIGNED_DTYPES(X)
#define SHMAP_DTYPES(X) \
  X(bool_, bool, "bool", "bool", "|b1", "BOOL") \
  SHMAP_INTEGER_DTYPES(X) SHMAP_FLOAT_DTYPES(X) \
  X(prng_key, std::uint32_t[2], "key<fry>", "key<fry>", nullptr, nullptr)
// clang-format on

namespace shmap {

namespace detail {
#define SHMAP_ROW(name, ...) DType::name,
inline constexpr DType dtype_rows[] = {SHMAP_DTYPES(SHMAP_ROW)};
#undef SHMAP_ROW
constexpr bool rows_are_in_order() {
  int row = 0;
  for (const DType dtype : dtype_rows)
    if (static_cast<int>(dtype) != row++) return false;
  return row == kDTypeCount;
}
}  // namespace detail

static_assert(detail::rows_are_in_order(), "a row for each DType, in the order of the enumeration");

#define SHMAP_AGREES(name, type, ...) \
  static_assert(itemsize(DType::name) == sizeof(type), #name ": itemsize in <shmap/dtype.h>");
SHMAP_DTYPES(SHMAP_AGREES)
#undef SHMAP_AGREES
#define SHMAP_AGREES(name, type, ...)                                        \
  static_assert(is_signed_int(DType::name) && dtype_of<type> == DType::name, \
                #name ": is_signed_int and dtype_of in <shmap/dtype.h>");
SHMAP_SIGNED_DTYPES(SHMAP_AGREES)
#undef SHMAP_AGREES
#define SHMAP_AGREES(name, type, ...)                                          \
  static_assert(is_unsigned_int(DType::name) && dtype_of<type> == DType::name, \
                #name ": is_unsigned_int and dtype_of in <shmap/dtype.h>");
SHMAP_UNSIGNED_DTYPES(SHMAP_AGREES)
#undef SHMAP_AGREES
#define SHMAP_AGREES(name, type, ...)                                      \
  static_assert(is_floating(DType::name) && dtype_of<type> == DType::name, \
                #name ": is_floating and dtype_of in <shmap/dtype.h>");
SHMAP_FLOAT_DTYPES(SHMAP_AGREES)
#undef SHMAP_AGREES

}  // namespace shmap
