// A timeline of the devices' streams as text, for terminals.
#pragma once
#include <span>
#include <string>

#include "core/device/timeline.h"

namespace shmap {

// "512 ns", "43.8 us", "2.16 s": three digits, and a unit that suits them.
std::string duration_text(double ns);

// One line a stream that did anything, `columns` characters wide (at least 1), '#' where it
// computed and '~' where it communicated, under a heading with the scale, and above an axis of time
// from the first event's begin to the last one's end:
//
//   1.00 us a column; # computing, ~ communicating
//     0 compute |##..##|
//     0 comm    |.~~...|
//                0 6.00 us
std::string draw_timeline(std::span<const TimelineEvent> events, int columns);

}  // namespace shmap
