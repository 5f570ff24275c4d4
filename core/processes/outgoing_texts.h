// Messages that are sent through MPI, for whose end nobody waits. Private to Exchanges, whose mutex
// protects the object.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/processes/message_passing.h"

namespace shmap {

class OutgoingTexts {
 public:
  bool empty() const noexcept { return under_way_.empty(); }
  void send(MessagePassing& messages, int to, int tag, std::span<const std::byte> head,
            std::span<const std::byte> body);
  // Frees the memory of those that have been sent.
  void drop_sent(MessagePassing& messages) {
    std::erase_if(under_way_, [&](Text& text) {
      return text.request == nullptr || messages.test(text.request, nullptr);
    });
  }

 private:
  struct Text {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::vector<Text> under_way_;
};

}  // namespace shmap
