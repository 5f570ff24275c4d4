// Values that have to be the same in all processes of a mesh: each process reports a hash of its
// own to the first process of the mesh, which compares them. Nobody waits for a report.
#include <string>
#include <utility>

#include "core/processes/exchanges.h"

namespace shmap {

void Exchanges::report_value(const SameValue& value, std::span<const int> processes) noexcept {
  try {
    EndedExchanges ended;
    bool posted = false;
    {
      std::lock_guard lock(mutex_);
      if (stopped_ || leaving_ || !fault_.empty()) return;
      const std::uint32_t time = values_.count(value);
      if (processes.front() == peers_.self()) {
        const std::string difference =
            values_.keep(value, time, static_cast<int>(processes.size()) - 1);
        if (!difference.empty()) {
          fail(difference, true);
          end_all(ended);
        }
      } else {
        Header header;
        header.space = value.space;
        header.number = value.key;
        header.round = time;
        header.check = value.hash;
        header.equations = value.equations;
        header.tag = static_cast<std::int32_t>(value.role);
        send_text(processes.front(), Kind::value, header, value.what);
        posted = !letters_.empty() || !outgoing_.empty();
      }
    }
    ended.tell();
    if (!posted) return;
    needs_looks_.store(true, std::memory_order_seq_cst);
    wake_thread(Rest::sleep);
  } catch (...) {
    return;  // no memory for the report: nothing depends on it
  }
}

void Exchanges::take_value(int from, const Header& header, std::string what) {
  const SameValue theirs{static_cast<SameValue::Role>(header.tag),
                         header.space,
                         header.number,
                         header.check,
                         header.equations,
                         std::move(what)};
  const std::string difference = values_.take(from, theirs, header.round);
  if (!difference.empty()) fail(difference, true);
}

}  // namespace shmap
