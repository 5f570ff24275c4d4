// The inside of Exchanges, for its files alone.
#pragma once
#include "core/processes/exchange.h"

namespace shmap {

inline constexpr std::size_t kRemembered = 256;
inline constexpr int kMessageTag = 1;  // of headers; what is large comes under a tag of its own
inline constexpr int kFirstTag = 2;
inline constexpr int kTags = 1 << 20;
inline constexpr std::int64_t kInline = 8 << 10;  // parcels up to this travel with their header
inline constexpr std::size_t kTextBytes = 4000;
inline constexpr std::size_t kMostLent = kInline / sizeof(std::int64_t);  // parcels of a message
// A turn of copying, from memory that is seen here and by a call of the kernel.
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
    std::size_t first, last;  // its parcels in exchange.receives
    std::int64_t bytes;
    int copies = 0;      // of what it lends, not made yet
    std::string answer;  // of one that is late
  };
  std::vector<Source> sources;
  std::size_t awaited = 0;  // sources that are not heard
  std::vector<MessagePassing::Request> sends, receives;
  std::vector<std::unique_ptr<std::byte[]>> messages;  // on their way
  std::deque<Letter> letters;                          // that wait for room
  int lent = 0;                                        // peers that still read what it lends
  int copies = 0;                                      // of all sources
  int copying = 0;  // threads that make one of them now: until they are back it stays
  Clock::time_point begun{}, asked{};
  bool warned = false;

  // For another exchange; the lists keep their room.
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
    asked = {};
    warned = false;
  }
};

class Exchanges::Attempt {
 private:
  friend class Exchanges;
  struct Way {  // to a peer, or from it
    int peer;
    std::size_t first, last;  // its parcels
    std::int64_t bytes;
    std::uint64_t digest;  // of its message
    bool heard;            // where it comes from the peer
  };
  // Takes what has come for that way. False where the message is not for this exchange, or does
  // not fit.
  static bool take(const ProcessExchange& exchange, Way& way, const Message& message) noexcept;
  Header header;
  std::vector<Way> to, from;
  History* history = nullptr;  // of the exchange's space, once it is known
  bool begun = false;          // sent, and not ended
  std::size_t awaited = 0;     // of `from`
};

}  // namespace shmap
