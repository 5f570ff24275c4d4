#include "shmap/dtype.h"

#include <ostream>

namespace shmap {

const char* short_name(DType t) {
  static constexpr const char* names[kDTypeCount] = {"bool", "i8",  "i16", "i32",     "i64",
                                                     "u8",   "u16", "u32", "u64",     "f16",
                                                     "bf16", "f32", "f64", "key<fry>"};
  return names[static_cast<int>(t)];
}

const char* numpy_name(DType t) {
  static constexpr const char* names[kDTypeCount] = {
      "bool",   "int8",   "int16",   "int32",    "int64",   "uint8",   "uint16",
      "uint32", "uint64", "float16", "bfloat16", "float32", "float64", "key<fry>"};
  return names[static_cast<int>(t)];
}

std::string to_string(DType t) { return short_name(t); }

std::ostream& operator<<(std::ostream& out, DType t) { return out << short_name(t); }

}  // namespace shmap
