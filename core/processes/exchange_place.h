// The place of an exchange, which is the same in all processes that take part. Private to
// Exchanges.
#pragma once
#include <compare>
#include <cstdint>

namespace shmap {

struct ExchangePlace {
  std::uint64_t space, number;
  std::uint32_t round;
  friend auto operator<=>(const ExchangePlace&, const ExchangePlace&) = default;
};

}  // namespace shmap
