#include "cuda/kernels/sort/sort_lines.h"

#include "cuda/kernels/move/copy.h"
#include "cuda/kernels/sort/block_sort.h"
#include "cuda/kernels/sort/radix_sort.h"

namespace shmap::cuda {
namespace {

constexpr std::int64_t kFewLines = 4;  // so few long lines are sorted one after another
constexpr std::int64_t kMostPairs = std::int64_t{1} << 32;

template <class Key>
__global__ void sort_short_lines(Key* keys, std::uint32_t* values, int len, int padded) {
  after_predecessor();
  __shared__ Key key[kBlockLine];
  __shared__ std::uint32_t at[kBlockLine];
  keys += blockIdx.x * static_cast<std::int64_t>(len);
  values += blockIdx.x * static_cast<std::int64_t>(len);
  for (int i = static_cast<int>(threadIdx.x); i < padded; i += static_cast<int>(blockDim.x)) {
    key[i] = i < len ? keys[i] : static_cast<Key>(~Key{0});
    at[i] = static_cast<std::uint32_t>(i);
  }
  sort_block(key, at, padded);
  constexpr int kHeld = static_cast<int>(kBlockLine) / kThreads;
  std::uint32_t held[kHeld];  // all are loaded before the first is stored
  for (int h = 0; h < kHeld; ++h) {
    const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
    held[h] = i < len ? values[at[i]] : 0;
  }
  __syncthreads();
  for (int h = 0; h < kHeld; ++h) {
    const int i = static_cast<int>(threadIdx.x) + h * static_cast<int>(blockDim.x);
    if (i >= len) continue;
    keys[i] = key[i];
    values[i] = held[h];
  }
}

__global__ void number_pairs(std::uint32_t* at, std::int64_t n) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step)
    at[i] = static_cast<std::uint32_t>(i);
}
__global__ void number_lines(const std::uint32_t* at, std::uint32_t* line, std::int64_t n,
                             std::uint32_t len) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step)
    line[i] = at[i] / len;
}
__global__ void permute_values(const std::uint32_t* values, const std::uint32_t* at,
                               std::uint32_t* out, std::int64_t n) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += step)
    out[i] = values[at[i]];
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

bool one_by_one(const SortLines& s) {
  return s.lines <= kFewLines || s.lines * s.len >= kMostPairs;
}

// The layout of scratch.
struct Memory {
  RadixSort sort;  // of all pairs, or of the pairs of one line
  std::int64_t keys, values, temporary, bytes;

  explicit Memory(const SortLines& s) {
    const bool alone = one_by_one(s);
    sort.key_bytes = s.key_bytes;
    sort.bits = s.bits;
    sort.n = alone ? s.len : s.lines * s.len;
    keys = rounded(sort.n * s.key_bytes);
    values = rounded(sort.n * 4);
    temporary = rounded(static_cast<std::int64_t>(radix_sort_temporary(sort)));
    if (!alone) {
      const std::int64_t of_lines =
          rounded(static_cast<std::int64_t>(radix_sort_temporary(line_sort(s))));
      if (of_lines > temporary) temporary = of_lines;
    }
    // The second keys and values; where all lines are sorted together, also positions, twice.
    bytes = keys + (alone ? 1 : 2) * values + temporary;
  }

  static RadixSort line_sort(const SortLines& s) {
    RadixSort by_line;
    by_line.n = s.lines * s.len;
    by_line.bits = 1;
    while (std::int64_t{1} << by_line.bits < s.lines) ++by_line.bits;
    return by_line;
  }
};

const void* sort_each(const SortLines& s, const Memory& m, char* scratch, void* stream) {
  RadixSort sort = m.sort;
  int found = 0;
  for (std::int64_t line = 0; line < s.lines; ++line) {
    sort.keys[0] = static_cast<char*>(s.keys) + line * s.len * s.key_bytes;
    sort.keys[1] = scratch;
    sort.values[0] = s.values + line * s.len;
    sort.values[1] = reinterpret_cast<std::uint32_t*>(scratch + m.keys);
    found = radix_sort(sort, scratch + m.keys + m.values, static_cast<std::size_t>(m.temporary),
                       stream);
    if (found == 1) copy_bytes(sort.values[0], sort.values[1], s.len * 4, stream);
  }
  return s.lines == 1 ? sort.keys[found] : nullptr;
}

// Sorts by key over all lines, then stably by line, which keeps the order within lines.
void sort_together(const SortLines& s, const Memory& m, char* scratch, void* stream) {
  const std::int64_t n = m.sort.n;
  RadixSort sort = m.sort;
  char* const temporary = scratch + m.keys + 2 * m.values;
  sort.keys[0] = s.keys;
  sort.keys[1] = scratch;
  sort.values[0] = reinterpret_cast<std::uint32_t*>(scratch + m.keys);
  sort.values[1] = reinterpret_cast<std::uint32_t*>(scratch + m.keys + m.values);
  const dim3 grid = grid_for(n), block(kThreads);
  launch("sort: positions", number_pairs, grid, block, stream, sort.values[0], n);
  const int found = radix_sort(sort, temporary, static_cast<std::size_t>(m.temporary), stream);
  RadixSort by_line = Memory::line_sort(s);
  by_line.keys[0] = sort.keys[0];
  by_line.keys[1] = sort.keys[1];
  by_line.values[0] = sort.values[found];
  by_line.values[1] = sort.values[1 - found];
  launch("sort: lines", number_lines, grid, block, stream, by_line.values[0],
         static_cast<std::uint32_t*>(by_line.keys[0]), n, static_cast<std::uint32_t>(s.len));
  const int last = radix_sort(by_line, temporary, static_cast<std::size_t>(m.temporary), stream);
  std::uint32_t* const out = by_line.values[1 - last];
  launch("sort: values", permute_values, grid, block, stream, s.values, by_line.values[last], out,
         n);
  copy_bytes(s.values, out, n * 4, stream);
}

}  // namespace

std::int64_t sort_lines_scratch(const SortLines& s) {
  if (s.lines * s.len == 0 || s.len <= kBlockLine) return 0;
  return Memory(s).bytes;
}

const void* sort_lines(const SortLines& s, void* scratch, void* stream) {
  if (s.lines * s.len == 0) return s.keys;
  if (s.len > kBlockLine) {
    const Memory memory(s);
    if (one_by_one(s)) return sort_each(s, memory, static_cast<char*>(scratch), stream);
    sort_together(s, memory, static_cast<char*>(scratch), stream);
    return nullptr;
  }
  const int len = static_cast<int>(s.len), padded = padded_line(s.len);
  const dim3 grid = grid_of("sort", s.lines);
  const dim3 block(static_cast<unsigned>(threads_of_line(padded)));
  if (s.key_bytes == 8) {
    launch("sort", sort_short_lines<std::uint64_t>, grid, block, stream,
           static_cast<std::uint64_t*>(s.keys), s.values, len, padded);
  } else {
    launch("sort", sort_short_lines<std::uint32_t>, grid, block, stream,
           static_cast<std::uint32_t*>(s.keys), s.values, len, padded);
  }
  return s.keys;
}

}  // namespace shmap::cuda
