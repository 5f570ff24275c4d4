// An exchange that is under way. Private to Exchanges, whose mutex protects the object.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/processes/exchange_place.h"
#include "core/processes/letter_queue.h"
#include "core/processes/message_passing.h"
#include "core/processes/process_exchange.h"

namespace shmap {

struct ActiveExchange {
  using Clock = std::chrono::steady_clock;
  const ProcessExchange* exchange = nullptr;
  ExchangeEnd* end = nullptr;
  ExchangePlace place{};
  ActiveExchange* next_by_place = nullptr;
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
  LetterQueue letters;
  int lent = 0;    // peers that still read what this process lends
  int copies = 0;  // not made yet: of all sources and of the exchange's own parcels, and parts of
                   // the work
  bool work_begun = false;
  bool receives_parcels = false;                    // in messages of their own
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
    work_begun = receives_parcels = false;
    addresses.clear();
    taken.clear();
    asked = {};
    warned = false;
  }
  // Forgets the requests that have ended.
  void drop_ended(MessagePassing& library) {
    for (auto* list : {&sends, &receives}) {
      std::erase_if(*list, [&](MessagePassing::Request& request) {
        return request == nullptr || library.test(request, nullptr);
      });
    }
  }
};

}  // namespace shmap
