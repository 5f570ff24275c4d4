// The messages by which Exchanges of different processes talk to each other. Private to Exchanges.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/processes/exchange_label.h"
#include "core/processes/process_exchange.h"

namespace shmap {

// A header and the bytes that follow it, 8-byte aligned.
struct ExchangeMessage {
  static constexpr int kTag = 1;  // of headers; large parcels are sent under a tag of their own
  static constexpr std::int64_t kInline = 8 << 10;  // bytes; parcels up to this size are sent with
                                                    // their header
  static constexpr std::size_t kFrontBytes = 32;

  // on_board: the parcels are on the sender's board, and `front` begins with the number of the
  // entry.
  enum class Kind : std::uint32_t {
    exchange,
    taken,
    leave,
    fault,
    ask,
    answer,
    on_board,
    value,
    mesh,
    skipped,
    left_out
  };

  // The members up to and including `front` are the first cache line of a message in memory. Where
  // both sides do the same, only this line is read.
  struct Header {
    Kind kind = Kind::exchange;
    std::uint32_t round = 0;
    std::uint64_t number = 0;
    std::uint64_t digest = 0;  // of the space and of everything that must be the same on both sides
    std::byte front[kFrontBytes] = {};  // the parcels, if they fit

    std::uint64_t space = 0, check = 0, program = 0, constants = 0;
    std::uint32_t equations = 0;
    std::int64_t bytes = 0;        // of all parcels together
    std::int32_t tag = 0;          // of the message with the parcels; 0: they follow this header
    std::uint32_t text_bytes = 0;  // of the text that follows this header, for other kinds
    // The number of parcels that the receiver reads in the sender's memory; 0: none. Their offsets
    // in the sender's shared heap, or their addresses, follow this header. The receiver answers
    // with a message of kind `taken` when it has read them.
    std::uint32_t lent = 0;
    std::uint32_t by_address = 0;
    ExchangeLabel label;

    // Of a message of that exchange, without what depends on its receiver.
    static Header of(const ProcessExchange& exchange);
    bool in_front() const noexcept {
      return kind == Kind::exchange && tag == 0 && lent == 0 &&
             bytes <= static_cast<std::int64_t>(kFrontBytes);
    }
    std::span<const std::byte> as_bytes() const noexcept {
      return {reinterpret_cast<const std::byte*>(this), sizeof *this};
    }
  };
  // The digest of a message with so many bytes of parcels.
  static std::uint64_t digest_of(const ProcessExchange& exchange, std::int64_t bytes) noexcept;

  std::span<const std::byte> bytes;
  const Header& header() const { return *reinterpret_cast<const Header*>(bytes.data()); }
  const std::byte* body() const {
    return header().in_front() ? header().front : bytes.data() + sizeof(Header);
  }
};

}  // namespace shmap
