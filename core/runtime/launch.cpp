#include "core/runtime/launch.h"

namespace shmap::detail {

void collect_waits(std::span<Buffer* const> reads, std::span<Buffer* const> writes,
                   std::vector<Event>& waits) {
  for (Buffer* b : reads)
    if (!settled(b->def())) waits.push_back(b->def());
  for (Buffer* b : writes) {
    if (!settled(b->def())) waits.push_back(b->def());
    for (const Event& use : b->uses())
      if (!use.done()) waits.push_back(use);
  }
}

void note_launch(const Event& event, std::span<Buffer* const> reads,
                 std::span<Buffer* const> writes) {
  for (Buffer* b : reads) b->add_use(event);
  for (Buffer* b : writes) {
    b->clear_uses();
    b->def() = event;
  }
}

}  // namespace shmap::detail
