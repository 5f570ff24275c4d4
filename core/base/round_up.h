// round_up: sizes and addresses as multiples.
#pragma once
#include <cstdint>

namespace shmap {

// The smallest multiple of `to` (above 0) that is not below n (not below 0).
constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace shmap
