// SHA-256 (FIPS 180-4), to verify and to name contents.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

class Sha256 {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  Sha256& add(std::string_view bytes) noexcept;
  // The digest of all added bytes. Call it once.
  Digest digest() noexcept;

 private:
  void compress(const std::uint8_t* block) noexcept;

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::size_t filled_ = 0;  // bytes in block_
  std::uint64_t total_ = 0;
};

// The digest of the bytes as 64 hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace shmap
