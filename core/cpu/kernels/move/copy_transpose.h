// The transpose of a matrix of 1-, 2-, 4- or 8-byte items.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// dst[r][c] = src[c][r] for r < rows, c < cols. Both are contiguous along their second index; rows
// of dst are dst_row bytes apart, rows of src src_row bytes. src and dst must not overlap; neither
// needs alignment.
void transpose(char* dst, std::int64_t dst_row, const char* src, std::int64_t src_row,
               std::int64_t rows, std::int64_t cols, int itemsize);
// The same, storing past the caches.
void transpose_around(char* dst, std::int64_t dst_row, const char* src, std::int64_t src_row,
                      std::int64_t rows, std::int64_t cols, int itemsize);

}  // namespace shmap::cpu
