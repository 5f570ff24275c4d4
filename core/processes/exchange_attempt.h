// A small exchange that one thread performs from beginning to end when it reaches the exchange: the
// prepared messages, and the state of the exchange. Private to Exchanges.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/processes/exchange_history.h"
#include "core/processes/exchange_message.h"
#include "core/processes/exchanges.h"
#include "core/processes/process_exchange.h"

namespace shmap {

class Exchanges::Attempt {
 private:
  friend class Exchanges;
  struct Way {  // to a peer, or from a peer
    int peer;
    std::size_t first, last;  // the way's parcels in sends or receives
    std::int64_t bytes;
    std::uint64_t digest;   // of the way's message
    bool heard = false;     // of a receive: the message has come
    bool in_ring = false;   // the message stays in its ring until the exchange's work is done
    std::int64_t kept = 0;  // of a receive, with work: its offset in Attempt::kept
  };
  // Takes the message that has come for `way`: copies the parcels to the memory of the receives or,
  // if the exchange has work, leaves them where they are. False if the message does not belong to
  // this exchange, or does not fit. on_board: the address of the parcels, for a message of kind
  // on_board.
  bool take(const ProcessExchange& exchange, Way& way, const Message& message,
            const std::byte* on_board = nullptr) noexcept;
  // Copies the parcels of `way`, which lie in a ring or on a board, to `kept`.
  void keep(Way& way) noexcept;
  static std::span<const Parcel> parcels(const std::vector<Parcel>& all, const Way& way) noexcept {
    return {all.data() + way.first, way.last - way.first};
  }
  Header header;
  bool on_board = false;  // all get the same parcels, which are on the board
  std::vector<Way> to, from;
  std::vector<const std::byte*> addresses;  // of the receives, for the work
  std::unique_ptr<std::byte[]> kept;        // for parcels that cannot stay in their rings
  ExchangeHistory* history = nullptr;       // of the exchange's space; null until it is known
  bool begun = false;                       // the messages are sent, and the exchange has not ended
  std::size_t awaited = 0;                  // messages that have not come
};

}  // namespace shmap
