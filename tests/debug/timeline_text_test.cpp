// Timelines as text: lines of streams, the axis of time, and durations.
#include "core/debug/timeline_text.h"

#include <gtest/gtest.h>

#include <vector>

namespace shmap {
namespace {

TimelineEvent event(int device, StreamRole role, std::int64_t begin_ns, std::int64_t end_ns) {
  return {"work", device, role, begin_ns, end_ns, 0};
}

TEST(TimelineText, DurationsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(duration_text(0), "0.00 ns");
  EXPECT_EQ(duration_text(512), "512 ns");
  EXPECT_EQ(duration_text(999.6), "1.00 us");
  EXPECT_EQ(duration_text(9.996e3), "10.0 us");
  EXPECT_EQ(duration_text(43.84e6), "43.8 ms");
  EXPECT_EQ(duration_text(2162616e3), "2.16 s");
  EXPECT_EQ(duration_text(3600e9), "3600 s");
}

TEST(TimelineText, DrawsALineForEachStreamAndAnAxis) {
  // The events are not in order, as in traces of several workers. Device 1 does nothing and has no
  // line.
  const std::vector<TimelineEvent> events = {
      event(0, StreamRole::comm, 2000, 4000), event(0, StreamRole::compute, 1000, 3000),
      event(2, StreamRole::compute, 6000, 7000), event(0, StreamRole::compute, 5000, 5001)};
  EXPECT_EQ(draw_timeline(events, 6),
            "1.00 us a column; # computing, ~ communicating\n"
            "  0 compute |##..#.|\n"
            "  0 comm    |.~~...|\n"
            "  2 compute |.....#|\n"
            "             0 6.00 us\n");
}

TEST(TimelineText, ALongAxisHasTicksBetween) {
  const std::string text =
      draw_timeline(std::vector{event(0, StreamRole::compute, 0, 2'000'000'000)}, 72);
  EXPECT_EQ(text.substr(text.rfind('\n', text.size() - 2) + 1),
            "             0              500 ms            1.00 s            1.50 s          "
            "2.00 s\n");
}

TEST(TimelineText, NothingAndAnInstant) {
  EXPECT_EQ(draw_timeline({}, 72), "no device did anything\n");
  EXPECT_EQ(draw_timeline(std::vector{event(0, StreamRole::comm, 5, 5)}, 2),
            "0.50 ns a column; # computing, ~ communicating\n"
            "  0 comm    |~.|\n"
            "             0 1.00 ns\n");
}

}  // namespace
}  // namespace shmap
