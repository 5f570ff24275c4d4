#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <set>

#include "core/base/file_descriptor.h"
#include "core/debug/trace_json.h"
#include "core/simulate/timeline.h"
#include "shmap/error.h"
#include "shmap/simulate.h"

namespace shmap {

namespace {

constexpr int kDevice = 1;  // the process id of the device in the format

std::int64_t ns(double us) { return std::llround(us * 1000); }

std::string trace_text(const detail::Timeline& timeline) {
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\"otherData\":"
      R"({"process":0,"processes":1,"begin_ns":0,"clock":"simulated"})"
      ",\"traceEvents\":[\n";
  text += trace_process_name(kDevice, "each device");
  text += ",\n" + trace_thread_name(kDevice, 0, "compute");
  std::set<int> levels{0};
  for (const detail::Timeline::Span& s : timeline.spans)
    if (s.lane != detail::Timeline::kCompute) levels.insert(s.lane);
  // The lanes of all levels have one name, by which scripts/timeline finds them.
  for (int level : levels) text += ",\n" + trace_thread_name(kDevice, 1 + level, "communication");
  for (const detail::Timeline::Span& s : timeline.spans) {
    std::string args = fmt::format(R"("bytes":{})", s.bytes);
    if (s.lane == detail::Timeline::kCompute) {
      args += fmt::format(R"(,"flops":{:.0f})", s.flops);
    } else {
      args += fmt::format(R"(,"level":{})", s.lane);
    }
    text += ",\n" + trace_span(kDevice, s.lane + 1, s.name, ns(s.begin_us),
                               ns(s.end_us) - ns(s.begin_us), args);
  }
  return text + "\n]}\n";
}

}  // namespace

void Schedule::save(const std::string& trace_path) const {
  if (!timeline)
    throw Error("Schedule::save(\"" + trace_path + "\"): there is no timeline: simulate makes one");
  errno = 0;
  std::ofstream file(trace_path, std::ios::binary);
  if (file) file << trace_text(*timeline);
  file.close();
  if (!file) {
    throw Error("Schedule::save: the file \"" + trace_path +
                "\" cannot be written: " + errno_text(errno) + ": give the trace another path");
  }
}

}  // namespace shmap
