#include "core/runtime/device_ops.h"

#include <cstdint>

namespace shmap {

DeviceOps& device_ops(DeviceKind kind) {
  static DeviceOps tables[kDeviceKinds];
  return tables[static_cast<int>(kind)];
}

void set_strides(BoxCopy& copy, const Shape& extent, const Shape& dst_shape, const Shape& src_shape,
                 int itemsize) {
  copy.rank = extent.rank();
  copy.itemsize = itemsize;
  // Unsigned: where one extent is 0, the product of the others may overflow. Such a stride is never
  // used.
  auto dst = static_cast<std::uint64_t>(itemsize), src = dst;
  for (std::size_t d = extent.size(); d-- > 0;) {
    copy.extent[d] = extent[d];
    copy.dst_stride[d] = static_cast<std::int64_t>(dst);
    copy.src_stride[d] = static_cast<std::int64_t>(src);
    dst *= static_cast<std::uint64_t>(dst_shape[d]);
    src *= static_cast<std::uint64_t>(src_shape[d]);
  }
}

}  // namespace shmap
