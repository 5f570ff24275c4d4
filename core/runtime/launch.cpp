#include "core/runtime/launch.h"

#include <new>
#include <string>

#include "shmap/error.h"

namespace shmap::detail {

void throw_in_task(const char* what) {
  throw Error(std::string(what) +
              ": an array operation inside a kernel or callback, which runs on a worker and has no "
              "trace: work on "
              "the memory that it is given");
}

void collect_waits(std::span<Buffer* const> reads, std::span<Buffer* const> writes,
                   TaskWaits& waits) {
  for (const std::span<Buffer* const> buffers : {reads, writes})
    for (Buffer* b : buffers)
      if (!settled(b->def())) waits.data.push_back(b->def());
  for (Buffer* b : writes)
    for (const Event& use : b->uses())
      if (!use.known_done()) waits.order.push_back(use);
}

void note_launch(const Event& event, std::span<Buffer* const> reads,
                 std::span<Buffer* const> writes) {
  try {
    for (Buffer* b : reads) b->add_use(event);
  } catch (const std::bad_alloc&) {
    // There is no memory to note the use, so wait until the task has read the buffers.
    if (capturing()) throw;
    event.record()->block();
  }
  for (Buffer* b : writes) {
    b->clear_uses();
    b->def() = event;
  }
}

}  // namespace shmap::detail
