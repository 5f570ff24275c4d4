#include "core/runtime/source_launch.h"

namespace shmap {

namespace {
LaunchSourceFn launch = nullptr;
}  // namespace

void set_launch_source(LaunchSourceFn fn) { launch = fn; }
LaunchSourceFn launch_source() { return launch; }

}  // namespace shmap
