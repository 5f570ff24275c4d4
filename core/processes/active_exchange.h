// The private types of Exchanges; only its own files include them.
#pragma once
#include "core/processes/exchange.h"

namespace shmap {

inline constexpr std::size_t kRemembered = 256;
inline constexpr int kMessageTag = 1;  // of headers; large parcels are sent under a tag of their
                                       // own
inline constexpr int kFirstTag = 2;
inline constexpr int kTags = 1 << 20;
inline constexpr std::int64_t kInline = 8 << 10;  // bytes; parcels up to this size are sent with
                                                  // their header
inline constexpr std::size_t kTextBytes = 4000;
inline constexpr std::size_t kMostLent = kInline / sizeof(std::int64_t);  // parcels in one message
// Bytes that a thread copies before it looks again: from memory that is mapped here, and by a
// system call (process_vm_readv).
inline constexpr std::int64_t kCopyBytes = std::int64_t{256} << 10;
inline constexpr std::int64_t kCallBytes = std::int64_t{4} << 20;
inline constexpr std::int64_t kPieceBytes = std::int64_t{256} << 20;

struct Exchanges::Active {
  const ProcessExchange* exchange = nullptr;
  ExchangeEnd* end = nullptr;
  Place place{};
  Active* next_by_place = nullptr;
  struct Source {
    int peer;
    bool heard;
    std::size_t first, last;  // the source's parcels: exchange.receives[first, last)
    std::int64_t bytes;
    int copies = 0;              // copies of lent parcels that are not made yet
    bool read_in_place = false;  // the exchange's work reads parcels that this source lends
    std::string answer;          // the answer of a source that is late
  };
  std::vector<Source> sources;
  std::size_t awaited = 0;  // sources from which no message has come
  std::vector<MessagePassing::Request> sends, receives;
  std::vector<std::unique_ptr<std::byte[]>> messages;  // being sent
  std::deque<Letter> letters;                          // waiting for room in a peer's ring
  int lent = 0;                                        // peers that still read what this process
                                                       // lends
  int copies = 0;  // not made yet: of all sources and of the exchange's own parcels, and parts of
                   // the work
  bool work_begun = false;
  std::vector<const std::byte*> addresses;          // of the receives, for the work
  std::vector<std::unique_ptr<std::byte[]>> taken;  // copies of receives that have no memory
  int copying = 0;  // threads that are copying for this exchange, which must stay until they are
                    // done
  Clock::time_point begun{}, asked{};
  bool warned = false;

  // Prepares the object for another exchange; the lists keep their capacity.
  void reset() {
    exchange = nullptr;
    end = nullptr;
    next_by_place = nullptr;
    sources.clear();
    awaited = 0;
    sends.clear();
    receives.clear();
    messages.clear();
    letters.clear();
    lent = copies = copying = 0;
    work_begun = false;
    addresses.clear();
    taken.clear();
    asked = {};
    warned = false;
  }
};

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
  History* history = nullptr;               // of the exchange's space; null until it is known
  bool begun = false;                       // the messages are sent, and the exchange has not ended
  std::size_t awaited = 0;                  // messages that have not come
};

}  // namespace shmap
