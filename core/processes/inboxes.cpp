#include "core/processes/inboxes.h"

namespace shmap {
namespace {

constexpr std::size_t kInboxes = 16;

}  // namespace

void Inboxes::open(MessagePassing& messages, std::int64_t most_bytes, int tag) {
  most_bytes_ = most_bytes;
  tag_ = tag;
  for (std::size_t i = 0; i < kInboxes; ++i) {
    Inbox& box = inboxes_.emplace_back();
    box.data = std::make_unique<std::byte[]>(static_cast<std::size_t>(most_bytes));
    box.request = messages.receive(box.data.get(), most_bytes, MessagePassing::kAnyone, tag);
  }
}

std::span<const std::byte> Inboxes::first(MessagePassing& messages, int& from) {
  Inbox& box = inboxes_[first_];
  MessagePassing::Arrival arrival{};
  if (box.request == nullptr || !messages.test(box.request, &arrival)) return {};
  from = arrival.from;
  return {box.data.get(), static_cast<std::size_t>(arrival.bytes)};
}

void Inboxes::renew_first(MessagePassing& messages) {
  Inbox& box = inboxes_[first_];
  box.request = messages.receive(box.data.get(), most_bytes_, MessagePassing::kAnyone, tag_);
  first_ = (first_ + 1) % inboxes_.size();
}

void Inboxes::cancel(MessagePassing& messages) noexcept {
  for (Inbox& box : inboxes_)
    if (box.request != nullptr) messages.cancel(box.request);
}

}  // namespace shmap
