// The exchanges that a process leaves out because what it would send could not be computed: those
// of this process, whose partners may have had the same failure and leave the exchange out too, and
// those of others, which this process may be about to run. Private to Exchanges, whose mutex
// protects the object.
#pragma once
#include <map>
#include <set>
#include <string>

#include "core/processes/exchange_place.h"

namespace shmap {

class SkippedExchanges {
 public:
  // This process leaves the exchange out; partners: the other processes that take part.
  void add_own(const ExchangePlace& place, std::set<int> partners);
  // A partner leaves it out, and says why.
  void add(const ExchangePlace& place, int process, std::string why);
  // Whether this process has left it out, and some partner has not said that it does, too.
  bool is_own(const ExchangePlace& place) const;
  // Why a partner leaves out an exchange that this process runs; null where none does, or where
  // this process leaves it out too.
  const std::string* find(const ExchangePlace& place) const;
  bool empty() const noexcept { return entries_.empty(); }

 private:
  struct Entry {
    bool own = false;
    std::set<int> awaited;             // own: the partners that have not said so
    std::map<int, std::string> heard;  // not own: why, by partner
  };
  std::map<ExchangePlace, Entry> entries_;
};

}  // namespace shmap
