// CRC-32C (Castagnoli's, as in iSCSI) and CRC-32 (zip's): whether bytes are the ones that were
// written. They find damage, not malice.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shmap {

// Of the bytes that `before` is the CRC of, and then these: 0 for none. Long ones are summed up by
// products without carries where the processor has them for 64 bytes at once, CRC-32C else by its
// instruction.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;
// The same, and copies them to `to`, which does not overlap. On x86 the copy goes past the caches
// where `to` is a multiple of 16: for what is not read again soon.
std::uint32_t copy_crc32c(void* to, const void* from, std::size_t bytes,
                          std::uint32_t before = 0) noexcept;
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;

}  // namespace shmap
