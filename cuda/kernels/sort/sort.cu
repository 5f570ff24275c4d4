#include "cuda/kernels/sort/sort.h"

#include <string>

#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/sort/block_sort.h"
#include "cuda/kernels/sort/sort_keys.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

// --- sort: copies the keys of an operand line by line and sorts them with the positions of the
// lines' items; in the end every operand is gathered from those positions.

struct Extents {
  std::int64_t len, inner, n;

  // The offset of item i of line `line` in an operand.
  SHMAP_FN std::int64_t at(std::int64_t line, std::int64_t i) const {
    return inner == 1 ? line * len + i : line / inner * len * inner + line % inner + i * inner;
  }
};

// Writes to keys[line, i] the key of the item at places[line, i]; the first call uses item i, and
// sets places.
template <class Bits>
__global__ void make_keys(const Bits* in, KeyRule rule, bool first,
                          typename WideKey<Bits>::type* keys, std::uint32_t* places, Extents e) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < e.n;
       p += step) {
    const std::int64_t line = p / e.len;
    const std::uint32_t i = first ? static_cast<std::uint32_t>(p - line * e.len) : places[p];
    if (first) places[p] = i;
    keys[p] = rule.key(in[e.at(line, i)]);
  }
}

// Writes results in the order of memory: neighbouring threads write neighbouring items.
template <class Bits>
__global__ void fetch_sorted(const Bits* in, Bits* out, const std::uint32_t* places, Extents e) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < e.n;
       p += step) {
    const std::int64_t row = p / e.inner, column = p - row * e.inner;
    const std::int64_t block = row / e.len, i = row - block * e.len;
    const std::int64_t line = block * e.inner + column;
    out[p] = in[e.at(line, places[line * e.len + i])];
  }
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

void check_key(DType dtype, std::int64_t len, const char* what) {
  if (dtype == DType::prng_key)
    throw TypeError(std::string(what) + ": " + to_string(dtype) + " has no order");
  if (len > INT32_MAX) {
    throw ValueError(std::string(what) + ": a dim of " + std::to_string(len) +
                     " items passes 2^31 - 1, the most that i32 indices can tell apart");
  }
}

// The sort of lines by keys of this dtype; the caller sets `keys` and `values`.
SortLines lines_by(DType dtype, std::int64_t lines, std::int64_t len) {
  SortLines sort;
  sort.key_bytes = itemsize(dtype) == 8 ? 8 : 4;
  sort.bits = 8 * itemsize(dtype);
  sort.lines = lines;
  sort.len = len;
  return sort;
}

struct SortMemory {
  std::int64_t keys = 0, places = 0, lines = 0;

  explicit SortMemory(const Sort& s) {
    const std::int64_t n = s.outer * s.len * s.inner;
    places = rounded(n * 4);
    for (int k = 0; k < s.num_keys; ++k) {
      const DType dtype = s.operands[static_cast<std::size_t>(k)].dtype;
      check_key(dtype, s.len, "sort");
      const SortLines sort = lines_by(dtype, s.outer * s.inner, s.len);
      const std::int64_t of_keys = rounded(n * sort.key_bytes), more = sort_lines_scratch(sort);
      if (of_keys > keys) keys = of_keys;
      if (more > lines) lines = more;
    }
  }
};

}  // namespace

std::int64_t sort_scratch(const Sort& s) {
  const SortMemory m(s);
  return m.keys + m.places + m.lines;
}

void sort(const Sort& s, void* scratch, void* stream) {
  const Extents e = {s.len, s.inner, s.outer * s.len * s.inner};
  const SortMemory m(s);
  if (e.n == 0) return;
  auto* const places = static_cast<std::uint32_t*>(scratch);
  void* const keys = static_cast<char*>(scratch) + m.places;
  for (int k = s.num_keys; k-- > 0;) {  // by the last key first, since each sort is stable
    const SortOperand& by = s.operands[static_cast<std::size_t>(k)];
    const bool known = with_bits(itemsize(by.dtype), [&]<class Bits>() {
      using Key = typename WideKey<Bits>::type;
      launch("sort: keys", make_keys<Bits>, grid_for(e.n), dim3(kThreads), stream,
             static_cast<const Bits*>(by.in), KeyRule(by.dtype), k + 1 == s.num_keys,
             static_cast<Key*>(keys), places, e);
    });
    check_launched("sort", known);
    SortLines sort = lines_by(by.dtype, s.outer * s.inner, s.len);
    sort.keys = keys;
    sort.values = places;
    sort_lines(sort, static_cast<char*>(keys) + m.keys, stream);
  }
  for (const SortOperand& operand : s.operands) {
    const bool known = with_bits(itemsize(operand.dtype), [&]<class Bits>() {
      launch("sort", fetch_sorted<Bits>, grid_for(e.n), dim3(kThreads), stream,
             static_cast<const Bits*>(operand.in), static_cast<Bits*>(operand.out), places, e);
    });
    check_launched("sort", known);
  }
}

// --- top_k: a block sorts a short row. In a long row the k-th key is found digit by digit; a block
// then collects and sorts the keys before it. A large k sorts whole rows.

namespace {

constexpr int kDigits = 256;
constexpr int kAhead = 4;  // items that a thread loads before it uses the first

// keys[i] = ~key of the row's items, so that ascending order puts the largest first.
template <class Bits>
__global__ void top_k_short(const Bits* in, KeyRule rule, Bits* values, std::int32_t* indices,
                            int len, int k, int padded) {
  after_predecessor();
  using Key = typename WideKey<Bits>::type;
  __shared__ Key key[kBlockLine];
  __shared__ std::uint32_t at[kBlockLine];
  in += blockIdx.x * static_cast<std::int64_t>(len);
  values += blockIdx.x * static_cast<std::int64_t>(k);
  indices += blockIdx.x * static_cast<std::int64_t>(k);
  for (int i = static_cast<int>(threadIdx.x); i < padded; i += static_cast<int>(blockDim.x)) {
    key[i] = i < len ? static_cast<Bits>(~rule.key(in[i])) : static_cast<Key>(~Key{0});
    at[i] = static_cast<std::uint32_t>(i);
  }
  sort_block(key, at, padded);
  for (int i = static_cast<int>(threadIdx.x); i < k; i += static_cast<int>(blockDim.x)) {
    values[i] = in[at[i]];
    indices[i] = static_cast<std::int32_t>(at[i]);
  }
}

// The number of threads of the block with the flag, before this thread and in total; every thread
// must call.
__device__ int count_before(bool flag, int* total) {
  __shared__ int of_warp[kThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned votes = __ballot_sync(0xffffffffu, flag);
  if (lane == 0) of_warp[warp] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1u));
  *total = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += of_warp[w];
    *total += of_warp[w];
  }
  __syncthreads();
  return before;
}

template <class Bits>
__global__ void top_k_long(const Bits* in, KeyRule rule, Bits* values, std::int32_t* indices,
                           std::int64_t len, int k, int padded) {
  after_predecessor();
  using Key = typename WideKey<Bits>::type;
  __shared__ Key key[kBlockLine];
  __shared__ std::uint32_t at[kBlockLine];
  __shared__ unsigned counts[kDigits];
  __shared__ unsigned chosen[2];  // the digit of the k-th key, and how many keys with it are needed
  const int t = static_cast<int>(threadIdx.x);
  in += blockIdx.x * len;
  values += blockIdx.x * static_cast<std::int64_t>(k);
  indices += blockIdx.x * static_cast<std::int64_t>(k);

  // The leading bits of the k-th key, and how many keys with these bits belong to the k.
  Bits prefix = 0, mask = 0;
  unsigned wanted = static_cast<unsigned>(k);
  for (int shift = scalar::bit_width<Bits> - 8; shift >= 0; shift -= 8) {
    for (int d = t; d < kDigits; d += kThreads) counts[d] = 0;
    __syncthreads();
    for (std::int64_t i = t; i < len; i += kAhead * kThreads) {
      Bits item[kAhead];
      for (int a = 0; a < kAhead; ++a)
        if (i + a * kThreads < len) item[a] = in[i + a * kThreads];
      for (int a = 0; a < kAhead; ++a) {
        if (i + a * kThreads >= len) break;
        const Bits own = static_cast<Bits>(~rule.key(item[a]));
        if (static_cast<Bits>(own & mask) == prefix)
          atomicAdd(&counts[static_cast<unsigned>(own >> shift) & 255u], 1u);
      }
    }
    __syncthreads();
    if (t == 0) {
      unsigned digit = 0, left = wanted;
      while (counts[digit] < left) left -= counts[digit++];
      chosen[0] = digit;
      chosen[1] = left;
    }
    __syncthreads();
    prefix = static_cast<Bits>(prefix | static_cast<Bits>(static_cast<Bits>(chosen[0]) << shift));
    mask = static_cast<Bits>(mask | static_cast<Bits>(static_cast<Bits>(255) << shift));
    wanted = chosen[1];
    __syncthreads();
  }

  // Collects the keys before the k-th key, and the first `wanted` keys equal to it, in order.
  const int less = k - static_cast<int>(wanted);
  int found_less = 0, found_equal = 0;
  for (std::int64_t first = 0; first < len; first += kThreads) {
    const std::int64_t i = first + t;
    const Bits own = i < len ? static_cast<Bits>(~rule.key(in[i])) : static_cast<Bits>(~Bits{0});
    const bool is_less = i < len && own < prefix, is_equal = i < len && own == prefix;
    if (__syncthreads_or(is_less || is_equal) == 0) continue;
    int all_less, all_equal;
    const int slot = found_less + count_before(is_less, &all_less);
    const int rank = found_equal + count_before(is_equal, &all_equal);
    const bool taken = is_equal && rank < static_cast<int>(wanted);
    if (is_less || taken) {
      key[is_less ? slot : less + rank] = own;
      at[is_less ? slot : less + rank] = static_cast<std::uint32_t>(i);
    }
    found_less += all_less;
    found_equal += all_equal;
    if (found_less == less && found_equal >= static_cast<int>(wanted)) break;
  }
  for (int i = k + t; i < padded; i += kThreads) {
    key[i] = static_cast<Key>(~Key{0});
    at[i] = ~std::uint32_t{0};
  }
  sort_block(key, at, padded);
  for (int i = t; i < k; i += kThreads) {
    values[i] = in[at[i]];
    indices[i] = static_cast<std::int32_t>(at[i]);
  }
}

template <class Bits>
__global__ void make_descending_keys(const Bits* in, KeyRule rule,
                                     typename WideKey<Bits>::type* keys, std::uint32_t* places,
                                     std::int64_t len, std::int64_t n) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < n;
       p += step) {
    keys[p] = static_cast<Bits>(~rule.key(in[p]));
    places[p] = static_cast<std::uint32_t>(p % len);
  }
}

template <class Bits>
__global__ void fetch_first(const Bits* in, const std::uint32_t* places, Bits* values,
                            std::int32_t* indices, std::int64_t len, std::int64_t k,
                            std::int64_t n) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < n;
       p += step) {
    const std::int64_t row = p / k, place = places[row * len + p - row * k];
    values[p] = in[row * len + place];
    indices[p] = static_cast<std::int32_t>(place);
  }
}

// True if whole rows are sorted: if k does not fit in a block, or if one block for each row would
// leave the GPU idle for long.
bool sorts_rows(const TopK& t) {
  constexpr std::int64_t kLongRow = std::int64_t{1} << 20, kFewRows = 8;
  if (t.len <= kBlockLine) return false;
  return t.k > kBlockLine || (t.len >= kLongRow && t.outer <= kFewRows);
}

}  // namespace

std::int64_t top_k_scratch(const TopK& t) {
  check_key(t.dtype, t.len, "top_k");
  if (t.k == 0 || t.outer == 0 || !sorts_rows(t)) return 0;
  const SortLines sort = lines_by(t.dtype, t.outer, t.len);
  return rounded(t.outer * t.len * 4) + rounded(t.outer * t.len * sort.key_bytes) +
         sort_lines_scratch(sort);
}

void top_k(const TopK& t, void* scratch, void* stream) {
  check_key(t.dtype, t.len, "top_k");
  if (t.k == 0 || t.outer == 0) return;
  const KeyRule rule(t.dtype);
  const bool by_rows = sorts_rows(t);
  const dim3 rows = by_rows ? dim3() : grid_of("top_k", t.outer);
  const bool known = with_bits(itemsize(t.dtype), [&]<class Bits>() {
    const auto* const in = static_cast<const Bits*>(t.in);
    auto* const values = static_cast<Bits*>(t.values);
    if (t.len <= kBlockLine) {
      const int padded = padded_line(t.len);
      return launch("top_k", top_k_short<Bits>, rows,
                    dim3(static_cast<unsigned>(threads_of_line(padded))), stream, in, rule, values,
                    t.indices, static_cast<int>(t.len), static_cast<int>(t.k), padded);
    }
    if (!by_rows) {
      return launch("top_k", top_k_long<Bits>, rows, dim3(kThreads), stream, in, rule, values,
                    t.indices, t.len, static_cast<int>(t.k), padded_line(t.k));
    }
    using Key = typename WideKey<Bits>::type;
    const std::int64_t n = t.outer * t.len;
    SortLines sort = lines_by(t.dtype, t.outer, t.len);
    sort.values = static_cast<std::uint32_t*>(scratch);
    auto* const keys = reinterpret_cast<Key*>(static_cast<char*>(scratch) + rounded(n * 4));
    sort.keys = keys;
    launch("top_k: keys", make_descending_keys<Bits>, grid_for(n), dim3(kThreads), stream, in, rule,
           keys, sort.values, t.len, n);
    sort_lines(sort, reinterpret_cast<char*>(keys) + rounded(n * sort.key_bytes), stream);
    launch("top_k", fetch_first<Bits>, grid_for(t.outer * t.k), dim3(kThreads), stream, in,
           static_cast<const std::uint32_t*>(sort.values), values, t.indices, t.len, t.k,
           t.outer * t.k);
  });
  check_launched("top_k", known);
}

}  // namespace shmap::cuda
