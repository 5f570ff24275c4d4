#include "core/debug/timeline_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>

namespace shmap {
namespace {

constexpr int kTickColumns = 18;  // the least distance between ticks of the axis

std::string spaces(std::size_t n) { return std::string(n, ' '); }

// Returns the axis below lines that begin at column `indent`: a tick with its time at each end and,
// if there is room, more between them.
std::string axis(std::size_t indent, int columns, double ns) {
  const int ticks = std::clamp(columns / kTickColumns, 1, 4);
  std::string line = spaces(indent) + "0";
  for (int t = 1; t <= ticks; ++t) {
    const std::string label = duration_text(ns * t / ticks);
    const std::size_t at = indent + static_cast<std::size_t>(columns) * static_cast<unsigned>(t) /
                                        static_cast<unsigned>(ticks);
    // A label is centred at its tick; the last label ends at its tick. Labels must not overlap.
    const std::size_t before = t < ticks ? label.size() / 2 : label.size() - 1;
    line +=
        spaces(std::max<std::size_t>(line.size() + 1, at > before ? at - before : 0) - line.size());
    line += label;
  }
  return line + "\n";
}

}  // namespace

std::string duration_text(double ns) {
  const char* const units[] = {"ns", "us", "ms", "s"};
  int unit = 0;
  // A time that rounds to 1000 of a unit is written as 1.00 of the next unit.
  for (; unit < 3 && ns >= 999.5; ++unit) ns /= 1000;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", ns < 9.995 ? 2 : ns < 99.95 ? 1 : 0, ns, units[unit]);
  return text;
}

std::string draw_timeline(std::span<const TimelineEvent> events, int columns) {
  if (events.empty()) return "no device did anything\n";
  columns = std::max(columns, 1);
  std::int64_t begin = events.front().begin_ns, end = events.front().end_ns;
  for (const TimelineEvent& e : events) {
    begin = std::min(begin, e.begin_ns);
    end = std::max(end, e.end_ns);
  }
  end = std::max(end, begin + 1);
  const double ns = static_cast<double>(end - begin);
  const auto column = [&](std::int64_t at) {
    return std::clamp(static_cast<int>(static_cast<double>(at - begin) / ns * columns), 0,
                      columns - 1);
  };
  std::map<std::pair<int, StreamRole>, std::string> lines;
  for (const TimelineEvent& e : events) {
    std::string& line =
        lines.try_emplace({e.device, e.role}, static_cast<std::size_t>(columns), '.').first->second;
    const int last = std::max(column(e.begin_ns), column(e.end_ns - 1));
    for (int c = column(e.begin_ns); c <= last; ++c)
      line[static_cast<std::size_t>(c)] = e.role == StreamRole::comm ? '~' : '#';
  }
  std::string out = duration_text(ns / columns) + " a column; # computing, ~ communicating\n";
  std::size_t indent = 0;
  for (const auto& [stream, line] : lines) {
    char label[48];
    std::snprintf(label, sizeof label, "%3d %-7s |", stream.first,
                  stream.second == StreamRole::comm ? "comm" : "compute");
    out += label + line + "|\n";
    indent = std::string(label).size();
  }
  return out + axis(indent, columns, ns);
}

}  // namespace shmap
