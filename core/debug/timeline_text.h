// A timeline of the devices' streams as text, for terminals.
#pragma once
#include <span>
#include <string>

#include "core/device/timeline.h"

namespace shmap {

// "512 ns", "43.8 us", "2.16 s": three digits, and a unit that suits them.
std::string duration_text(double ns);

// One line for each stream with events, `columns` characters wide (at least 1): '#' where the
// stream computed, '~' where it communicated. Above them a heading with the scale; below them an
// axis of time, from the begin of the first event to the end of the last:
//
//   1.00 us a column; # computing, ~ communicating
//     0 compute |##..##|
//     0 comm    |.~~...|
//                0 6.00 us
std::string draw_timeline(std::span<const TimelineEvent> events, int columns);

}  // namespace shmap
