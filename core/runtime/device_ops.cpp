#include "core/runtime/device_ops.h"

namespace shmap {

DeviceOps& device_ops(DeviceKind kind) {
  static DeviceOps tables[kDeviceKinds];
  return tables[static_cast<int>(kind)];
}

}  // namespace shmap
