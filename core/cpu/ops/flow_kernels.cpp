// Loops and branches as tasks: on the CPU a device runs host code.
#include "core/runtime/flow_task.h"

namespace shmap {

void register_cpu_flow_kernels() {
  flow_task_p.kernel(DeviceKind::cpu) = {.run = run_flow_task, .scratch = flow_task_scratch};
  branch_task_p.kernel(DeviceKind::cpu) = {.run = run_flow_task, .parts = branch_task_parts};
}

}  // namespace shmap
