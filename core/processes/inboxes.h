// Open receives of the messages that come through MPI. Private to Exchanges, whose mutex protects
// the object.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/processes/message_passing.h"

namespace shmap {

class Inboxes {
 public:
  // Opens receives for messages of at most so many bytes under that tag, from any process.
  void open(MessagePassing& messages, std::int64_t most_bytes, int tag);
  // The message that came next, which stays valid until renew_first(); empty where none has come.
  std::span<const std::byte> first(MessagePassing& messages, int& from);
  void renew_first(MessagePassing& messages);
  void cancel(MessagePassing& messages) noexcept;

 private:
  struct Inbox {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::vector<Inbox> inboxes_;  // in the order in which they are filled
  std::size_t first_ = 0;
  std::int64_t most_bytes_ = 0;
  int tag_ = 0;
};

}  // namespace shmap
