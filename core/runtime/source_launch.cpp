#include "core/runtime/source_launch.h"

namespace shmap {

namespace {
LaunchSourceFn source_launcher = nullptr;
}  // namespace

void set_launch_source(LaunchSourceFn fn) { source_launcher = fn; }
LaunchSourceFn launch_source() { return source_launcher; }

}  // namespace shmap
