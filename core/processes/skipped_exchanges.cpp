#include "core/processes/skipped_exchanges.h"

#include <utility>

namespace shmap {

void SkippedExchanges::add_own(const ExchangePlace& place, std::set<int> partners) {
  Entry& entry = entries_[place];
  for (const auto& [process, why] : entry.heard) partners.erase(process);
  if (partners.empty()) {
    entries_.erase(place);
    return;
  }
  entry = {true, std::move(partners), {}};
}

void SkippedExchanges::add(const ExchangePlace& place, int process, std::string why) {
  Entry& entry = entries_[place];
  if (!entry.own) {
    entry.heard.emplace(process, std::move(why));
    return;
  }
  entry.awaited.erase(process);
  if (entry.awaited.empty()) entries_.erase(place);
}

bool SkippedExchanges::is_own(const ExchangePlace& place) const {
  const auto it = entries_.find(place);
  return it != entries_.end() && it->second.own;
}

const std::string* SkippedExchanges::find(const ExchangePlace& place) const {
  const auto it = entries_.find(place);
  return it == entries_.end() || it->second.own ? nullptr : &it->second.heard.begin()->second;
}

}  // namespace shmap
