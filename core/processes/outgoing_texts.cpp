#include "core/processes/outgoing_texts.h"

#include <algorithm>
#include <utility>

namespace shmap {

void OutgoingTexts::send(MessagePassing& messages, int to, int tag, std::span<const std::byte> head,
                         std::span<const std::byte> body) {
  const std::size_t size = head.size() + body.size();
  Text text;
  text.data = std::make_unique_for_overwrite<std::byte[]>(size);
  std::ranges::copy(body, std::ranges::copy(head, text.data.get()).out);
  text.request = messages.send(text.data.get(), static_cast<std::int64_t>(size), to, tag);
  under_way_.push_back(std::move(text));
}

}  // namespace shmap
