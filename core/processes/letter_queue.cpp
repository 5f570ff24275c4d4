#include "core/processes/letter_queue.h"

namespace shmap {

void LetterQueue::push(int to, std::span<const std::byte> head, std::span<const std::byte> body) {
  Letter& letter = letters_.emplace_back(Letter{to, {head.begin(), head.end()}});
  letter.bytes.insert(letter.bytes.end(), body.begin(), body.end());
}

bool LetterQueue::send_first(NodeLink& link) noexcept {
  bool any = false;
  while (!letters_.empty() && link.send(letters_.front().to, letters_.front().bytes, {})) {
    letters_.pop_front();
    any = true;
  }
  return any;
}

}  // namespace shmap
