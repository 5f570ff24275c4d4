#include "core/processes/while_waiting.h"

#include "core/processes/exchanges.h"
#include "core/processes/processes.h"

namespace shmap::detail {

namespace {

Exchanges* joined_exchanges() noexcept {
  Processes* const processes = Processes::joined();
  return processes != nullptr ? &processes->exchanges() : nullptr;
}

}  // namespace

LookAgain look_around() noexcept {
  Exchanges* const exchanges = joined_exchanges();
  return exchanges != nullptr ? exchanges->poke() : LookAgain::no_reason;
}

bool room_is_awaited() noexcept {
  Exchanges* const exchanges = joined_exchanges();
  return exchanges != nullptr && exchanges->awaits_room();
}

bool others_are_awaited() noexcept {
  Exchanges* const exchanges = joined_exchanges();
  return exchanges != nullptr && exchanges->any_under_way();
}

ActiveWait::ActiveWait() noexcept : exchanges_(joined_exchanges()) {
  if (exchanges_ != nullptr) exchanges_->looking(Looking::begins);
}
ActiveWait::~ActiveWait() {
  if (exchanges_ != nullptr)
    exchanges_->looking(hands_over_ ? Looking::ends_and_hands_over : Looking::ends);
}

void hand_over_looking() noexcept {
  if (Exchanges* const exchanges = joined_exchanges()) exchanges->looking(Looking::hands_over);
}

}  // namespace shmap::detail
