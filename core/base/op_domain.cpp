#include "core/base/op_domain.h"

#include <string>

#include "shmap/error.h"

namespace shmap {

std::vector<DType> dtypes_of(Domain domain) {
  std::vector<DType> dtypes;
  for (int t = 0; t < kDTypeCount; ++t)
    if (in_domain(static_cast<DType>(t), domain)) dtypes.push_back(static_cast<DType>(t));
  return dtypes;
}

void check_kernels(const char* primitive, Domain domain, bool (*has)(DType dtype)) {
  for (const DType dtype : dtypes_of(domain)) {
    if (!has(dtype)) {
      throw Error(std::string(primitive) + ": a backend has no kernel for operands of " +
                  short_name(dtype));
    }
  }
}

void check_kernels(const char* primitive, Domain domain, const std::vector<DType>& outs,
                   bool (*has)(DType in, DType out)) {
  for (const DType in : dtypes_of(domain)) {
    for (const DType out : outs) {
      if (!has(in, out)) {
        throw Error(std::string(primitive) + ": a backend has no kernel for operands of " +
                    short_name(in) + " and results of " + short_name(out));
      }
    }
  }
}

}  // namespace shmap
