#include "core/simulate/timeline.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace shmap::detail {

namespace {

using Interval = std::pair<double, double>;

// Sorts the intervals and merges those that overlap.
std::vector<Interval> joined(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> out;
  for (const Interval& i : intervals) {
    if (!out.empty() && i.first <= out.back().second) {
      out.back().second = std::max(out.back().second, i.second);
    } else {
      out.push_back(i);
    }
  }
  return out;
}

double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

}  // namespace

double Timeline::run(Span span, double ready_us) {
  double& free = free_[static_cast<std::size_t>(span.lane + 1)];
  const double took = span.end_us - span.begin_us;
  span.begin_us = std::max(free, ready_us);
  span.end_us = span.begin_us + took;
  free = span.end_us;
  const double end = span.end_us;
  spans.push_back(std::move(span));
  return end;
}

void Timeline::repeat(const Repeat& repeat, const std::vector<bool>& moves,
                      const std::string& name) {
  repeats.push_back(repeat);
  for (std::size_t lane = 0; lane < free_.size(); ++lane) {
    if (!moves[lane]) continue;
    free_[lane] += repeat.end_us - repeat.begin_us;
    spans.push_back({static_cast<int>(lane) - 1, name, repeat.begin_us, repeat.end_us, 0, 0});
  }
}

// The time in which lanes communicate or compute, minus the time in which the device computes.
double Timeline::exposed(double begin_us, double end_us, std::size_t first) const {
  std::vector<Interval> compute, any;
  for (std::size_t k = first; k < spans.size(); ++k) {
    const Span& s = spans[k];
    const Interval part{std::max(s.begin_us, begin_us), std::min(s.end_us, end_us)};
    if (part.second <= part.first) continue;
    any.push_back(part);
    if (s.lane == kCompute) compute.push_back(part);
  }
  return length(joined(std::move(any))) - length(joined(std::move(compute)));
}

double Timeline::exposed() const {
  double sum = 0, from = 0;
  for (const Repeat& r : repeats) {
    sum += exposed(from, r.begin_us) + r.exposed_us;
    from = r.end_us;
  }
  return sum + exposed(from, std::numeric_limits<double>::infinity());
}

double Timeline::end() const { return *std::max_element(free_.begin(), free_.end()); }

}  // namespace shmap::detail
