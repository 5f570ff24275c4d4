#include "core/runtime/device_ops.h"

namespace shmap {

DeviceOps& device_ops(DeviceKind kind) {
  static DeviceOps tables[kDeviceKinds];
  return tables[static_cast<int>(kind)];
}

void set_strides(BoxCopy& copy, const Shape& extent, const Shape& dst_shape, const Shape& src_shape,
                 int itemsize) {
  copy.rank = extent.rank();
  copy.itemsize = itemsize;
  std::int64_t dst = itemsize, src = itemsize;
  for (std::size_t d = extent.size(); d-- > 0;) {
    copy.extent[d] = extent[d];
    copy.dst_stride[d] = dst;
    copy.src_stride[d] = src;
    dst *= dst_shape[d];
    src *= src_shape[d];
  }
}

}  // namespace shmap
