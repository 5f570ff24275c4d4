#include "core/cpu/waiting.h"

#include <cstdio>

#include "core/base/warning.h"
#include "core/cpu/executor.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

bool under_debugger() noexcept {
  std::FILE* status = std::fopen("/proc/self/status", "re");
  if (status == nullptr) return false;
  char line[256];
  bool traced = false;
  while (std::fgets(line, sizeof line, status) != nullptr) {
    int pid = 0;
    if (std::sscanf(line, "TracerPid: %d", &pid) == 1) traced = pid != 0;
  }
  std::fclose(status);
  return traced;
}

}  // namespace

void Deadline::check(const Node* node, bool may_throw) {
  const ExecutorOptions& o = executor_.options();
  const double sec = std::chrono::duration<double>(Clock::now() - start_).count();
  if (may_throw && o.timeout_sec > 0 && sec > o.timeout_sec && !under_debugger()) {
    throw DeviceError(text(node, sec) +
                      ". Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC); the task goes on.");
  }
  if (!warned_ && o.warn_sec > 0 && sec > o.warn_sec) {
    warned_ = true;
    warn(text(node, sec) + " (SHMAP_COLLECTIVE_WARN_SEC)");
  }
}

std::string Deadline::text(const Node* node, double sec) const {
  std::string what = "the tasks in flight";
  if (node != nullptr) {
    what = std::string("task '") + node->task.name + "' of local device " +
           std::to_string(node->stream->device_index()) +
           (node->stream->role() == StreamRole::comm ? ", communication" : ", compute") +
           " stream, which still waits for " +
           std::to_string(node->blockers.load(std::memory_order_relaxed)) + " others";
  }
  return "waiting for " + what + ", since " + std::to_string(sec) + " s; " +
         std::to_string(executor_.in_flight()) + " tasks are in flight, " +
         std::to_string(executor_.ready_parts()) + " ready";
}

}  // namespace shmap::cpu
