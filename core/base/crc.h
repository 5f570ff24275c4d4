// CRC-32C (Castagnoli, as in iSCSI) and CRC-32 (zip): checksums that detect accidental damage, but
// not tampering.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shmap {

// Returns the CRC of the concatenation of earlier bytes, whose CRC is `before`, and these bytes;
// `before` is 0 if there are no earlier bytes. Long inputs use carry-less products of 64 bytes
// where the processor has them; else CRC-32C uses the processor's CRC instruction.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;
// Computes crc32c() of the bytes at `from` and copies them to `to`, which must not overlap `from`.
// On x86 the copy bypasses the caches (non-temporal stores) if `to` is a multiple of 16: for data
// that is not read again soon.
std::uint32_t copy_crc32c(void* to, const void* from, std::size_t bytes,
                          std::uint32_t before = 0) noexcept;
// As crc32c(), for CRC-32.
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;

}  // namespace shmap
