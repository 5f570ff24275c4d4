#include "core/processes/letter_queue.h"

#include <utility>

namespace shmap {

void LetterQueue::push(int to, std::span<const std::byte> head, std::span<const std::byte> body) {
  Letter& letter = letters_.emplace_back(Letter{to, {head.begin(), head.end()}});
  letter.bytes.insert(letter.bytes.end(), body.begin(), body.end());
}

bool LetterQueue::send_some(NodeLink& link) noexcept {
  auto kept = letters_.begin();
  for (Letter& letter : letters_) {
    const bool behind = std::any_of(letters_.begin(), kept,
                                    [&](const Letter& other) { return other.to == letter.to; });
    if (!behind && link.send(letter.to, letter.bytes, {})) continue;
    if (&*kept != &letter) *kept = std::move(letter);
    ++kept;
  }
  const bool any = kept != letters_.end();
  letters_.erase(kept, letters_.end());
  return any;
}

}  // namespace shmap
