#include "core/processes/exchange_message.h"

#include "core/base/hash_text.h"

namespace shmap {

ExchangeMessage::Header ExchangeMessage::Header::of(const ProcessExchange& exchange) {
  Header header;
  header.round = exchange.round;
  header.number = exchange.number;
  header.space = exchange.space;
  header.check = exchange.check;
  header.program = exchange.program;
  header.constants = exchange.constants;
  header.equations = exchange.equations;
  header.label = exchange.label;
  return header;
}

std::uint64_t ExchangeMessage::digest_of(const ProcessExchange& exchange,
                                         std::int64_t bytes) noexcept {
  return HashText()
      .add(exchange.space)
      .add(exchange.check)
      .add(exchange.program)
      .add(exchange.constants)
      .add(exchange.equations)
      .add(static_cast<std::uint64_t>(bytes))
      .value();
}

}  // namespace shmap
