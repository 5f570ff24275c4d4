#include "shmap/dtype.h"

#include <ostream>

#include "core/base/dtype_table.h"

namespace shmap {

const char* short_name(DType t) {
#define SHMAP_NAME(name, type, jaxpr, ...) jaxpr,
  static constexpr const char* names[kDTypeCount] = {SHMAP_DTYPES(SHMAP_NAME)};
#undef SHMAP_NAME
  return names[static_cast<int>(t)];
}

const char* numpy_name(DType t) {
#define SHMAP_NAME(name, type, jaxpr, numpy, ...) numpy,
  static constexpr const char* names[kDTypeCount] = {SHMAP_DTYPES(SHMAP_NAME)};
#undef SHMAP_NAME
  return names[static_cast<int>(t)];
}

std::string to_string(DType t) { return short_name(t); }

std::ostream& operator<<(std::ostream& out, DType t) { return out << short_name(t); }

}  // namespace shmap
