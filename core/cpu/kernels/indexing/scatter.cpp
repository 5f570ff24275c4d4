#include "core/cpu/kernels/indexing/scatter.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/contains.h"
#include "core/base/element_type.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/indexing/gather_index.h"
#include "core/cpu/kernels/indexing/kept_rows.h"
#include "core/cpu/kernels/move/copy.h"
#include "core/cpu/kernels/vector/extremes.h"
#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

using std::int64_t;

// Computes dst[i] = dst[i] op src[i] for i < count; strides are in bytes.
using Combine = void (*)(char* dst, int64_t dst_stride, const char* src, int64_t src_stride,
                         int64_t count);

template <class T, ScatterKind op>
T combined(T a, T b) {
  if constexpr (op == ScatterKind::set) {
    return b;
  } else if constexpr (std::is_same_v<T, bool>) {
    return op == ScatterKind::add || op == ScatterKind::max ? a || b : a && b;
  } else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
    return T(combined<float, op>(a, b));
  } else if constexpr (op == ScatterKind::min) {
    return smaller_of(a, b);
  } else if constexpr (op == ScatterKind::max) {
    return larger_of(a, b);
  } else if constexpr (std::is_integral_v<T>) {
    using Wide = std::common_type_t<std::make_unsigned_t<T>, unsigned>;  // wraps
    const Wide x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    return static_cast<T>(op == ScatterKind::add ? x + y : x * y);
  } else {
    return op == ScatterKind::add ? a + b : a * b;
  }
}

template <class T, ScatterKind op>
void combine(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t count) {
  constexpr int64_t size = sizeof(T);
  if (dst_stride == size && src_stride == size) {
    T* __restrict to = reinterpret_cast<T*>(dst);
    const T* __restrict from = reinterpret_cast<const T*>(src);
    for (int64_t i = 0; i < count; ++i) to[i] = combined<T, op>(to[i], from[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    T& to = *reinterpret_cast<T*>(dst + i * dst_stride);
    to = combined<T, op>(to, *reinterpret_cast<const T*>(src + i * src_stride));
  }
}

// Returns the kernel for long rows of floats, or nullptr if the loops above are as fast.
template <class T, ScatterKind op>
BinaryFn row_kernel() {
  constexpr bool is_float =
      std::is_floating_point_v<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
  if constexpr (is_float && op != ScatterKind::set) {
    return binary_kernel(op == ScatterKind::add   ? BinaryOp::add
                         : op == ScatterKind::mul ? BinaryOp::mul
                         : op == ScatterKind::min ? BinaryOp::min
                                                  : BinaryOp::max,
                         dtype_of<T>);
  } else {
    return nullptr;
  }
}

// Combines update at[k] into row rows[k] of the operand, in the order of k. Rows have `row`
// elements, of which only first … last - 1 are combined.
struct Rows {
  char* operand;
  const char* updates;
  int64_t row, first, last;
};
using CombineRows = void (*)(const Rows& r, const std::int32_t* rows, const std::int32_t* at,
                             int64_t count);

// Combines single elements, a few at a time: loads their updates before it stores the first result,
// since a load right behind a store to an address that is not known yet may have to wait.
template <class T, ScatterKind op, class UpdateAt>
void combine_elements(T* operand, const std::int32_t* rows, int64_t count, UpdateAt update) {
  constexpr int64_t kFew = 4;
  int64_t k = 0;
  for (; k + kFew <= count; k += kFew) {
    T few[kFew];
    T* to[kFew];
    for (int64_t j = 0; j < kFew; ++j) few[j] = update(k + j), to[j] = operand + rows[k + j];
    for (int64_t j = 0; j < kFew; ++j) *to[j] = combined<T, op>(*to[j], few[j]);
  }
  for (; k < count; ++k) operand[rows[k]] = combined<T, op>(operand[rows[k]], update(k));
}

template <class T, ScatterKind op>
void combine_rows(const Rows& r, const std::int32_t* rows, const std::int32_t* at, int64_t count) {
  // Rows are anywhere in the operand, so the next ones are prefetched while others are combined.
  constexpr int64_t kAhead = 8;
  T* const operand = reinterpret_cast<T*>(r.operand);
  const T* const updates = reinterpret_cast<const T*>(r.updates);
  if (r.row == 1) {
    // `at` ascends, so it is 0, 1, 2 … if its last element is count - 1.
    if (count > 0 && at[count - 1] == count - 1)
      return combine_elements<T, op>(operand, rows, count, [=](int64_t k) { return updates[k]; });
    return combine_elements<T, op>(operand, rows, count, [=](int64_t k) { return updates[at[k]]; });
  }
  constexpr int64_t kLongRow = 32;  // elements; shorter rows are not worth a call
  static const BinaryFn long_row = row_kernel<T, op>();
  const int64_t wide = r.last - r.first;
  const BinaryFn call = wide >= kLongRow ? long_row : nullptr;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t next = rows[std::min(k + kAhead, count - 1)];
    const auto* line = reinterpret_cast<const char*>(operand + next * r.row + r.first);
    const int64_t bytes = wide * static_cast<int64_t>(sizeof(T));
    for (int64_t ahead = 0; ahead < std::min<int64_t>(bytes, 512); ahead += 64)
      __builtin_prefetch(line + ahead, 1);
    if (call != nullptr) {
      T* const begin = operand + rows[k] * r.row + r.first;
      call(begin, false, updates + at[k] * r.row + r.first, false, begin, wide);
      continue;
    }
    T* __restrict to = operand + rows[k] * r.row;
    const T* __restrict from = updates + at[k] * r.row;
    for (int64_t i = r.first; i < r.last; ++i) to[i] = combined<T, op>(to[i], from[i]);
  }
}

struct Combiner {
  Combine strided = nullptr;
  CombineRows rows = nullptr;
};

template <class T, ScatterKind op>
Combiner combiner() {
  return {combine<T, op>, combine_rows<T, op>};
}

template <class T>
Combiner combine_of(ScatterKind op) {
  switch (op) {
    case ScatterKind::set:
      return combiner<T, ScatterKind::set>();
    case ScatterKind::add:
      return combiner<T, ScatterKind::add>();
    case ScatterKind::mul:
      return combiner<T, ScatterKind::mul>();
    case ScatterKind::min:
      return combiner<T, ScatterKind::min>();
    case ScatterKind::max:
      return combiner<T, ScatterKind::max>();
  }
  return {};
}

Combiner combine_of(DType t, ScatterKind op) {
  if (t != prng_key) return with_plain(t, [op]<class T>() { return combine_of<T>(op); });
  if (op == ScatterKind::set) return combiner<std::uint64_t, ScatterKind::set>();
  throw TypeError(std::string("scatter: ") + short_name(t) + " can only be set");
}

struct Plan {
  int rank = 0;       // number of dims of a window
  int dim[kMaxRank];  // the operand dim of each window dim
  int64_t extent[kMaxRank];
  int64_t operand_stride[kMaxRank], update_stride[kMaxRank];  // bytes, by window dim
  int batch_rank = 0;
  int64_t batch_count = 1;
  int64_t batch_extent[kMaxRank], batch_stride[kMaxRank];  // in updates, bytes
  int64_t stride[kMaxRank];                                // bytes, for every operand dim
  int64_t last_start[kMaxRank];  // for each operand dim, the largest start whose window fits
  int64_t from_end[kMaxRank];    // for each operand dim, the number added to a negative index
  int64_t index_size = 0;
};

Plan make_plan(const Scatter& s) {
  Plan p;
  const int size = itemsize(s.dtype);
  int64_t update_stride[kMaxRank];
  row_major_strides(s.operand_shape.rank(), s.operand_shape.data(), size, p.stride);
  row_major_strides(s.slices_shape.rank(), s.slices_shape.data(), size, update_stride);
  p.index_size = s.indices_shape.back();
  for (int d = 0; d < s.operand_shape.rank(); ++d) {
    const int64_t extent = s.operand_shape[static_cast<std::size_t>(d)];
    p.last_start[d] = extent - 1;
    p.from_end[d] = s.from_end ? extent : 0;
    if (contains(s.dims.collapsed_slice_dims, d) || contains(s.dims.operand_batching_dims, d))
      continue;
    const auto u = static_cast<std::size_t>(s.dims.offset_dims[static_cast<std::size_t>(p.rank)]);
    p.dim[p.rank] = d;
    p.extent[p.rank] = s.slices_shape[u];
    p.operand_stride[p.rank] = p.stride[d];
    p.update_stride[p.rank] = update_stride[u];
    p.last_start[d] = extent - p.extent[p.rank];
    ++p.rank;
  }
  for (int d = 0; d < s.slices_shape.rank(); ++d) {
    if (contains(s.dims.offset_dims, d)) continue;
    p.batch_extent[p.batch_rank] = s.slices_shape[static_cast<std::size_t>(d)];
    p.batch_count *= p.batch_extent[p.batch_rank];
    p.batch_stride[p.batch_rank++] = update_stride[d];
  }
  return p;
}

// Chooses the operand dim whose ranges are the parts, so that no two parts write the same element:
// a part applies the elements in its range of every window. Prefers a dim along which no index
// moves windows, since each part then applies a share of each window.
int choose_cut(const Scatter& s, const Plan& p, int parts) {
  int best = 0;
  for (int d = 1; d < s.operand_shape.rank(); ++d)
    if (s.operand_shape[static_cast<std::size_t>(d)] >
        s.operand_shape[static_cast<std::size_t>(best)])
      best = d;
  for (int w = 0; w < p.rank; ++w)
    if (p.last_start[p.dim[w]] == 0 && p.extent[w] >= 4 * parts) return p.dim[w];
  return best;
}

void apply(const Plan& p, Combine f, char* operand, const char* update) {
  if (p.rank == 0) return f(operand, 0, update, 0, 1);
  const int inner = p.rank - 1;
  int64_t index[kMaxRank] = {};
  for (;;) {
    f(operand, p.operand_stride[inner], update, p.update_stride[inner], p.extent[inner]);
    int d = inner - 1;
    for (; d >= 0; --d) {
      operand += p.operand_stride[d];
      update += p.update_stride[d];
      if (++index[d] < p.extent[d]) break;
      operand -= p.operand_stride[d] * p.extent[d];
      update -= p.update_stride[d] * p.extent[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// True if the updates are whole rows of the operand, contiguous one after another, and each index
// vector has one entry, which is the row's number.
bool is_rows(const Scatter& s, const Plan& p) {
  if (p.index_size != 1 || s.dims.operand_batching_dims.size() > 0) return false;
  if (s.index_dtype != i32 && s.index_dtype != i64) return false;
  if (s.operand_shape.rank() == 0 || s.operand_shape[0] >= INT32_MAX) return false;
  if (s.dims.start_index_map[0] != 0 || s.dims.collapsed_slice_dims.size() != 1 ||
      s.dims.collapsed_slice_dims[0] != 0)
    return false;
  int64_t expected = itemsize(s.dtype);
  for (int w = p.rank - 1; w >= 0; --w) {
    if (p.last_start[p.dim[w]] != 0 || p.operand_stride[w] != expected ||
        p.update_stride[w] != expected)
      return false;
    expected *= p.extent[w];
  }
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    if (p.batch_stride[d] != expected) return false;
    expected *= p.batch_extent[d];
  }
  return true;
}

// The work of one call of scatter_rows(): updates [from, to), and the range [begin, end) of the
// dim that threads share. That dim is the operand's rows if `cuts_rows`, else the elements of each
// row.
struct RowsPart {
  bool cuts_rows;
  int64_t begin, end, from, to;
};

void scatter_rows(const Scatter& s, const Plan& p, CombineRows combine, const RowsPart& part,
                  void* operand) {
  constexpr int64_t kBlock = 512;
  std::int32_t rows[kBlock + kKeptRoom], at[kBlock + kKeptRoom], narrow[kBlock];
  static const KeepRowsFn keep = keep_rows_kernel();
  const int64_t row = p.stride[0] / itemsize(s.dtype);
  const auto most = static_cast<std::int32_t>(s.operand_shape[0] - 1);
  const std::int32_t first = part.cuts_rows ? static_cast<std::int32_t>(part.begin) : 0;
  const std::int32_t last = part.cuts_rows ? static_cast<std::int32_t>(part.end) : most + 1;
  Rows r{static_cast<char*>(operand), static_cast<const char*>(s.updates) + part.from * p.stride[0],
         row, part.cuts_rows ? 0 : part.begin, part.cuts_rows ? row : part.end};
  for (int64_t b = part.from; b < part.to; b += kBlock) {
    const int64_t count = std::min(kBlock, part.to - b);
    const std::int32_t* indices = narrow;
    if (s.index_dtype == i32) {
      indices = static_cast<const std::int32_t*>(s.indices) + b;
    } else {  // an index beyond 32 bits is out of bounds, as INT32_MIN and INT32_MAX are
      const auto* const from = static_cast<const int64_t*>(s.indices) + b;
      for (int64_t k = 0; k < count; ++k)
        narrow[k] = static_cast<std::int32_t>(std::clamp<int64_t>(from[k], INT32_MIN, INT32_MAX));
    }
    combine(r, rows, at,
            keep(indices, count, static_cast<std::int32_t>(p.from_end[0]),
                 s.mode == IndexMode::clip, most, first, last, rows, at));
    r.updates += count * p.stride[0];
  }
}

// The number of blocks, each with sums of its own, into which the updates are divided: more than 1
// if many updates add single elements of 4 or 8 bytes to few sums. Depends on the shapes alone,
// because it decides the order of the additions.
int64_t block_count(const Scatter& s, const Plan& p) {
  constexpr int64_t kBlockUpdates = 4096;  // a block of fewer updates is not worth its own sums
  constexpr int64_t kUpdatesOfSum = 16;    // so many that adding up the blocks' sums costs little
  constexpr int64_t kMostBlocks = 16;
  if (s.op != ScatterKind::add || s.dtype == prng_key || itemsize(s.dtype) < 4) return 1;
  if (!is_rows(s, p) || p.stride[0] != itemsize(s.dtype)) return 1;
  const int64_t least = std::max(kBlockUpdates, kUpdatesOfSum * s.operand_shape[0]);
  return std::clamp<int64_t>(p.batch_count / least, 1, kMostBlocks);
}

int64_t sums_bytes(const Scatter& s) { return s.operand_shape[0] * itemsize(s.dtype); }

// Sets sums[i] to the x for which x + y has the bits of y.
void clear_sums(const Scatter& s, void* sums) {
  const float zero = -0.0f;
  const double long_zero = -0.0;
  const std::uint64_t none = 0;
  const void* neutral = &none;
  if (s.dtype == f32) neutral = &zero;
  if (s.dtype == f64) neutral = &long_zero;
  fill(sums, neutral, itemsize(s.dtype), s.operand_shape[0]);
}

// Adds block b of the updates to `sums`.
void add_block(const Scatter& s, const Plan& p, int64_t b, int64_t blocks, void* sums) {
  const RowsPart part{true, 0, s.operand_shape[0], p.batch_count * b / blocks,
                      p.batch_count * (b + 1) / blocks};
  scatter_rows(s, p, combine_of(s.dtype, s.op).rows, part, sums);
}

// Adds the sums of a block to `to`.
void add_sums(const Scatter& s, void* to, const void* sums) {
  const int64_t size = itemsize(s.dtype);
  combine_of(s.dtype, s.op)
      .strided(static_cast<char*>(to), size, static_cast<const char*>(sums), size,
               s.operand_shape[0]);
}

// Memory that a thread keeps for the sums of one block.
struct BlockSums {
  std::vector<std::byte> bytes;
};

void scatter_blocks(const Scatter& s, const Plan& p, int64_t blocks) {
  std::vector<std::byte>& sums = kept_by_thread<BlockSums>().bytes;
  sums.resize(static_cast<std::size_t>(sums_bytes(s)));
  add_block(s, p, 0, blocks, s.operand);
  for (int64_t b = 1; b < blocks; ++b) {
    clear_sums(s, sums.data());
    add_block(s, p, b, blocks, sums.data());
    add_sums(s, s.operand, sums.data());
  }
}

}  // namespace

void scatter(const Scatter& s) { scatter_part(s, 0, 1); }

int64_t scatter_block_count(const Scatter& s) { return block_count(s, make_plan(s)); }

void scatter_to_sums(const Scatter& s, const void* original, int64_t begin, int64_t end,
                     void* sums) {
  const Plan p = make_plan(s);
  const int64_t blocks = block_count(s, p);
  for (int64_t b = begin; b < end; ++b) {
    char* const to = static_cast<char*>(sums) + b * sums_bytes(s);
    if (b == 0)
      copy_bytes(to, static_cast<const char*>(original), sums_bytes(s));
    else
      clear_sums(s, to);
    add_block(s, p, b, blocks, to);
  }
}

void add_scatter_sums(const Scatter& s, const void* sums) {
  const int64_t blocks = scatter_block_count(s), bytes = sums_bytes(s);
  const char* const from = static_cast<const char*>(sums);
  copy_bytes(static_cast<char*>(s.operand), from, bytes);
  for (int64_t b = 1; b < blocks; ++b) add_sums(s, s.operand, from + b * bytes);
}

int scatter_parts(const Scatter& s, int workers) {
  const Plan p = make_plan(s);
  if (const int64_t blocks = block_count(s, p); blocks > 1)
    return static_cast<int>(std::min<int64_t>(blocks, workers));
  constexpr int64_t worth_a_part = 16 << 10;  // elements
  int64_t elements = p.batch_count;
  for (int d = 0; d < p.rank; ++d) elements *= p.extent[d];
  return static_cast<int>(std::clamp<int64_t>(elements / worth_a_part, 1, workers));
}

void copy_scatter_part(const Scatter& s, const void* original, int part, int parts) {
  const Plan p = make_plan(s);
  const int cut = choose_cut(s, p, parts);
  const bool scalar = s.operand_shape.rank() == 0;
  const int64_t extent = scalar ? 1 : s.operand_shape[static_cast<std::size_t>(cut)];
  const int64_t stride = scalar ? itemsize(s.dtype) : p.stride[cut];
  const int64_t begin = extent * part / parts, end = extent * (part + 1) / parts;
  int64_t outer = 1;
  for (int d = 0; d < cut; ++d) outer *= s.operand_shape[static_cast<std::size_t>(d)];
  for (int64_t o = 0; o < outer; ++o) {
    const int64_t at = (o * extent + begin) * stride;
    copy_bytes(static_cast<char*>(s.operand) + at, static_cast<const char*>(original) + at,
               (end - begin) * stride);
  }
}

void scatter_part(const Scatter& s, int part, int parts) {
  Plan p = make_plan(s);
  if (const int64_t blocks = block_count(s, p); blocks > 1) {
    if (part == 0) scatter_blocks(s, p, blocks);
    return;
  }
  const ReadIndex read = index_reader(s.index_dtype);
  const Combiner combiner = combine_of(s.dtype, s.op);
  const Combine f = combiner.strided;
  const int rank = s.operand_shape.rank();
  // The range of the part. A scalar operand is treated as one with a single dim of extent 1.
  const int cut = choose_cut(s, p, parts);
  const int64_t extent = rank > 0 ? s.operand_shape[static_cast<std::size_t>(cut)] : 1;
  const int64_t begin = extent * part / parts, end = extent * (part + 1) / parts;
  if (begin == end) return;
  if (is_rows(s, p) && (cut == 0 || p.rank == 1))
    return scatter_rows(s, p, combiner.rows, {cut == 0, begin, end, 0, p.batch_count}, s.operand);
  int64_t window_extent = 1, window_stride = 0;  // along the cut dim, for a whole window
  int cut_window = -1;
  for (int w = 0; w < p.rank; ++w) {
    if (p.extent[w] == 0) return;
    if (p.dim[w] != cut) continue;
    cut_window = w;
    window_extent = p.extent[w];
    window_stride = p.update_stride[w];
  }

  for (int64_t b = 0; b < p.batch_count; ++b) {
    int64_t start[kMaxRank] = {};
    int64_t index[kMaxRank];
    const char* from = static_cast<const char*>(s.updates);
    for (int64_t rest = b, d = p.batch_rank - 1; d >= 0; --d) {
      index[d] = rest % p.batch_extent[d];
      rest /= p.batch_extent[d];
      from += index[d] * p.batch_stride[d];
    }
    bool inside = true;
    for (int64_t k = 0; k < p.index_size; ++k) {
      const int64_t d = s.dims.start_index_map[static_cast<std::size_t>(k)];
      start[d] = read(s.indices, b * p.index_size + k);
      if (start[d] < 0) start[d] += p.from_end[d];
      if (s.mode == IndexMode::clip)
        start[d] = std::clamp<int64_t>(start[d], 0, p.last_start[d]);
      else
        inside &= start[d] >= 0 && start[d] <= p.last_start[d];
    }
    if (!inside) continue;
    for (std::size_t i = 0; i < s.dims.operand_batching_dims.size(); ++i)
      start[s.dims.operand_batching_dims[i]] = index[s.dims.indices_batching_dims[i]];
    const int64_t first = std::max(start[cut], begin);
    const int64_t last = std::min(start[cut] + window_extent, end);
    if (first >= last) continue;
    from += (first - start[cut]) * window_stride;
    start[cut] = first;
    if (cut_window >= 0) p.extent[cut_window] = last - first;
    char* to = static_cast<char*>(s.operand);
    for (int d = 0; d < rank; ++d) to += start[d] * p.stride[d];
    apply(p, f, to, from);
  }
}

}  // namespace shmap::cpu
