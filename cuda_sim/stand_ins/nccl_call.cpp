#include "nccl_call.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "shmap/half.h"

namespace shmap_sim {

namespace {

template <class T>
void reduce_as(void* into, const void* from, std::size_t n, ncclRedOp_t op) {
  auto* a = static_cast<T*>(into);
  const auto* b = static_cast<const T*>(from);
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) {
      // Integers wrap.
      using U = std::make_unsigned_t<T>;
      const auto x = static_cast<std::uint64_t>(static_cast<U>(a[i]));
      const auto y = static_cast<std::uint64_t>(static_cast<U>(b[i]));
      a[i] = op == ncclSum    ? static_cast<T>(x + y)
             : op == ncclProd ? static_cast<T>(x * y)
             : op == ncclMax  ? std::max(a[i], b[i])
                              : std::min(a[i], b[i]);
    } else if constexpr (std::is_floating_point_v<T>) {
      // As in NCCL, the maximum of a number and a NaN is the number.
      a[i] = op == ncclSum    ? a[i] + b[i]
             : op == ncclProd ? a[i] * b[i]
             : op == ncclMax  ? (a[i] < b[i] || a[i] != a[i] ? b[i] : a[i])
                              : (b[i] < a[i] || a[i] != a[i] ? b[i] : a[i]);
    } else {
      const float x = a[i], y = b[i];
      a[i] = T(op == ncclSum    ? x + y
               : op == ncclProd ? x * y
               : op == ncclMax  ? std::max(x, y)
                                : std::min(x, y));
    }
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  static constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

void reduce(void* into, const void* from, std::size_t n, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8:
      return reduce_as<std::int8_t>(into, from, n, op);
    case ncclUint8:
      return reduce_as<std::uint8_t>(into, from, n, op);
    case ncclInt32:
      return reduce_as<std::int32_t>(into, from, n, op);
    case ncclUint32:
      return reduce_as<std::uint32_t>(into, from, n, op);
    case ncclInt64:
      return reduce_as<std::int64_t>(into, from, n, op);
    case ncclUint64:
      return reduce_as<std::uint64_t>(into, from, n, op);
    case ncclFloat16:
      return reduce_as<shmap::float16>(into, from, n, op);
    case ncclFloat32:
      return reduce_as<float>(into, from, n, op);
    case ncclFloat64:
      return reduce_as<double>(into, from, n, op);
    case ncclBfloat16:
      return reduce_as<shmap::bfloat16>(into, from, n, op);
  }
}

}  // namespace shmap_sim
