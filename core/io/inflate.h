// Inflates deflated bytes (RFC 1951), as in zip archives, as a stream. The bytes are not trusted:
// the result is their contents, or a ValueError that says what is wrong. Memory is bounded by 64
// KiB of input and of output, whatever the size of the contents.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shmap::io {

// Reads exactly the next `count` deflated bytes.
using ReadNext = std::function<void(std::byte* dst, std::int64_t count)>;

class Inflater {
 public:
  // `packed`: the number of deflated bytes. `name` begins messages.
  Inflater(ReadNext next, std::int64_t packed, std::string name);
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) noexcept;
  ~Inflater();

  // Writes the next bytes to `dst` and returns their number, which is less than `count` only at the
  // end. ValueError where the deflated bytes are malformed, end early, or continue after the end.
  std::int64_t read(std::byte* dst, std::int64_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The largest ratio of inflated to deflated bytes: a match of 258 bytes may take two bits.
inline constexpr std::int64_t kMostInflation = 1032;

}  // namespace shmap::io
