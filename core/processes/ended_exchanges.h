// The exchanges that have ended and whose ExchangeEnd is to be called once the mutex of Exchanges
// is free. Mostly one, which needs no heap memory. Private to Exchanges.
#pragma once
#include <exception>
#include <utility>
#include <vector>

#include "core/processes/process_exchange.h"

namespace shmap {

class EndedExchanges {
 public:
  void push(ExchangeEnd* end, std::exception_ptr error);
  bool empty() const noexcept { return first_.end == nullptr; }
  void tell() noexcept;  // calls all of them, and empties the list

 private:
  struct Ended {
    ExchangeEnd* end = nullptr;
    std::exception_ptr error;
    void tell() noexcept { end->exchanged(std::move(error)); }
  };
  Ended first_;
  std::vector<Ended> more_;
};

}  // namespace shmap
