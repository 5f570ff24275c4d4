#include "core/cpu/kernels/move/copy_run.h"

#include <cstddef>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/move/copy_run.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// Copies from the last byte to the first. Then no load follows a store to an address that differs
// by a multiple of the page size; some processors compare only the lower bits and would wait.
void copy_backwards(std::byte* dst, const std::byte* src, std::int64_t bytes) {
#if SHMAP_VECTORS
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<std::uint8_t, 32> d;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(src);
  auto* const to = reinterpret_cast<std::uint8_t*>(dst);
  while (bytes >= 128) {
    bytes -= 128;
    const auto a = hn::LoadU(d, from + bytes), b = hn::LoadU(d, from + bytes + 32);
    const auto c = hn::LoadU(d, from + bytes + 64), e = hn::LoadU(d, from + bytes + 96);
    hn::StoreU(e, d, to + bytes + 96);
    hn::StoreU(c, d, to + bytes + 64);
    hn::StoreU(b, d, to + bytes + 32);
    hn::StoreU(a, d, to + bytes);
  }
#else
  constexpr std::int64_t piece = 1024;  // shorter than the runs that memcpy copies by a string
                                        // instruction
  while (bytes >= piece) {
    bytes -= piece;
    std::memcpy(dst + bytes, src + bytes, piece);
  }
#endif
  std::memcpy(dst, src, static_cast<std::size_t>(bytes));
}

using CopyBackwards = void (*)(std::byte*, const std::byte*, std::int64_t);
CopyBackwards find_copy_backwards() { return copy_backwards; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_copy_backwards);

void copy_run(void* dst, const void* src, std::int64_t bytes) {
  // glibc's memcpy uses `rep movsb` from 2112 bytes on, which takes ten times as long on Zen 3
  // where dst is some bytes after src in its page (glibc's bug 30994; measured up to 31 bytes).
  constexpr std::int64_t long_run = 2048;
  constexpr std::uintptr_t page = 4096, slow = 32;
  const auto ahead = reinterpret_cast<std::uintptr_t>(dst) - reinterpret_cast<std::uintptr_t>(src);
  if (bytes < long_run || (ahead - 1) % page >= slow) {
    std::memcpy(dst, src, static_cast<std::size_t>(bytes));
    return;
  }
  static const auto backwards = SHMAP_BEST(find_copy_backwards)();
  backwards(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), bytes);
}

}  // namespace shmap::cpu
#endif
