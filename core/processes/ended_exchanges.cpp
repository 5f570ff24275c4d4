#include "core/processes/ended_exchanges.h"

namespace shmap {

void EndedExchanges::push(ExchangeEnd* end, std::exception_ptr error) {
  if (first_.end == nullptr)
    first_ = {end, std::move(error)};
  else
    more_.push_back({end, std::move(error)});
}

void EndedExchanges::tell() noexcept {
  if (first_.end == nullptr) return;
  std::exchange(first_, {}).tell();
  for (Ended& e : std::exchange(more_, {})) e.tell();
}

}  // namespace shmap
