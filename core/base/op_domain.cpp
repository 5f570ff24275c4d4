#include "core/base/op_domain.h"

#include <string>

#include "shmap/error.h"

namespace shmap {

void check_kernels(const char* primitive, Domain domain, bool (*has)(DType dtype)) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (in_domain(dtype, domain) && !has(dtype)) {
      throw Error(std::string(primitive) + ": a backend has no kernel for operands of " +
                  short_name(dtype));
    }
  }
}

}  // namespace shmap
