// Messages that wait for room in the rings of processes that the link reaches. Those for one
// process are sent in their order; a full ring holds back no message for another process. Private
// to Exchanges, whose mutex protects the object.
#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "core/processes/node_link.h"

namespace shmap {

class LetterQueue {
 public:
  bool empty() const noexcept { return letters_.empty(); }
  bool has_for(int process) const noexcept {
    return std::ranges::any_of(letters_, [&](const Letter& l) { return l.to == process; });
  }
  void push(int to, std::span<const std::byte> head, std::span<const std::byte> body);
  // Sends those for which there is room; returns whether there were any. link: may be null where
  // the queue is empty.
  bool send(NodeLink* link) noexcept { return !letters_.empty() && send_some(*link); }
  void clear() noexcept { letters_.clear(); }

 private:
  bool send_some(NodeLink& link) noexcept;
  struct Letter {
    int to;
    std::vector<std::byte> bytes;
  };
  std::deque<Letter> letters_;
};

}  // namespace shmap
