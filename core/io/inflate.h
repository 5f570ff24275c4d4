// Deflated bytes (RFC 1951), as zip archives have them, read as a stream. What they are is not
// trusted: any bytes give what they stand for, or a ValueError that says what is wrong. No more is
// ever held than the last 64 KiB of either side, whatever the bytes claim to stand for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shmap::io {

// Gives the next bytes of the deflated ones, exactly so many.
using ReadNext = std::function<void(std::byte* dst, std::int64_t count)>;

class Inflater {
 public:
  // `packed`: how many deflated bytes there are. `name` begins messages.
  Inflater(ReadNext next, std::int64_t packed, std::string name);
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) noexcept;
  ~Inflater();

  // The next bytes to `dst`: fewer than `count` at the end alone. ValueError where the deflated
  // ones are none, end early, or go on after their end.
  std::int64_t read(std::byte* dst, std::int64_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The most bytes that so many deflated ones may stand for: two bits for a match of 258 bytes.
inline constexpr std::int64_t kMostInflation = 1032;

}  // namespace shmap::io
