#include "cuda/kernels/indexing/slicing.h"

#include <string>

#include "cuda/kernels/indexing/index_read.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/fast_div.h"
#include "cuda/kernels/launch/launch.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

struct alignas(16) Bytes16 {
  std::uint64_t words[2];
};

// A box between two arrays, in units of one or several items that are moved together. `starts_in`:
// the slice's position in the whole is added to the input's address; otherwise to the output's.
struct Box {
  std::int64_t rank = 0, units = 1;
  std::int64_t extent[kMaxRank] = {}, in_stride[kMaxRank] = {}, out_stride[kMaxRank] = {};
  std::int64_t starts_in = 1;
  std::int64_t starts = 0;  // one for each dim that the slice does not take whole
  struct Start {
    const void* data = nullptr;
    std::int64_t dtype = 0, extent = 0, last = 0, stride = 0;
  } start[kMaxRank];
};

SHMAP_FN std::int64_t clamped_start(std::int64_t start, std::int64_t extent, std::int64_t last) {
  if (start < 0) start += extent;
  return start < 0 ? 0 : start > last ? last : start;
}

// Divisors for all dims except the outermost.
template <class Index>
struct BoxDivisors {
  FastDiv<Index> extent[kMaxRank];
};

template <class Unit, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_box(const SHMAP_CONSTANT Box box, const SHMAP_CONSTANT BoxDivisors<Index> divisors,
             const Unit* in, Unit* out) {
  after_predecessor();
  std::int64_t moved = 0;
  for (std::int64_t s = 0; s < box.starts; ++s) {
    const Box::Start& start = box.start[s];
    moved += clamped_start(read_index(start.data, static_cast<DType>(start.dtype), 0), start.extent,
                           start.last) *
             start.stride;
  }
  if (box.starts_in != 0)
    in += moved;
  else
    out += moved;
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  const Index units = static_cast<Index>(box.units);
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += step) {
    std::int64_t from = 0, to = 0;
    Index rest = i;
    for (std::int64_t d = box.rank - 1; d > 0; --d) {
      const auto at = static_cast<std::int64_t>(divisors.extent[d].split(rest));
      from += at * box.in_stride[d];
      to += at * box.out_stride[d];
    }
    from += static_cast<std::int64_t>(rest) * box.in_stride[0];
    to += static_cast<std::int64_t>(rest) * box.out_stride[0];
    out[to] = in[from];
  }
}

// The box of `part` in `whole`, strides in bytes; merges dims that are contiguous on both sides.
Box make_box(int itemsize, const Shape& whole, const Shape& part, const SliceStart* starts,
             bool starts_in) {
  Box box;
  box.starts_in = starts_in ? 1 : 0;
  std::int64_t* const whole_stride = starts_in ? box.in_stride : box.out_stride;
  std::int64_t* const part_stride = starts_in ? box.out_stride : box.in_stride;
  std::int64_t in_whole = itemsize, in_part = itemsize;
  std::int64_t extent[kMaxRank], of_whole[kMaxRank], of_part[kMaxRank];
  int kept = 0;  // dims so far, from the innermost out
  for (int d = whole.rank() - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    if (!is_integer(starts[d].dtype)) {
      throw TypeError("dynamic_slice: start " + std::to_string(d) + " is " +
                      to_string(starts[d].dtype) + ": an integer type is wanted");
    }
    if (whole[i] != part[i]) {
      std::int64_t moved = in_whole;
      const std::int64_t last = whole[i] - part[i];
      if (starts[d].literal) {  // a known position: a start of one item, at address null
        moved *= clamped_start(read_index(starts[d].data, starts[d].dtype, 0), whole[i], last);
      }
      box.start[box.starts++] = {starts[d].literal ? nullptr : starts[d].data,
                                 static_cast<std::int64_t>(starts[d].dtype), whole[i], last, moved};
    }
    if (part[i] != 1) {
      const bool joins = kept > 0 && of_whole[kept - 1] * extent[kept - 1] == in_whole &&
                         of_part[kept - 1] * extent[kept - 1] == in_part;
      if (joins) {
        extent[kept - 1] *= part[i];
      } else {
        extent[kept] = part[i];
        of_whole[kept] = in_whole;
        of_part[kept++] = in_part;
      }
    }
    in_whole *= whole[i];
    in_part *= part[i];
  }
  if (kept == 0) {
    extent[0] = 1;
    of_whole[0] = of_part[0] = itemsize;
    kept = 1;
  }
  box.rank = kept;
  for (int d = 0; d < kept; ++d) {
    box.extent[d] = extent[kept - 1 - d];
    whole_stride[d] = of_whole[kept - 1 - d];
    part_stride[d] = of_part[kept - 1 - d];
  }
  return box;
}

// The most bytes, up to 16, that can be moved at a time at every possible position of the slice.
int unit_of(const Box& box, int itemsize, const void* in, const void* out) {
  const std::int64_t inner = box.rank - 1;
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
  if (box.in_stride[inner] != itemsize || box.out_stride[inner] != itemsize) return itemsize;
  bits |= static_cast<std::uint64_t>(box.extent[inner] * itemsize);
  for (std::int64_t d = 0; d < inner; ++d)
    bits |= static_cast<std::uint64_t>(box.in_stride[d] | box.out_stride[d]);
  for (std::int64_t s = 0; s < box.starts; ++s)
    bits |= static_cast<std::uint64_t>(box.start[s].stride);
  int unit = 16;
  while (unit > itemsize && bits % static_cast<unsigned>(unit) != 0) unit /= 2;
  return unit;
}

template <class Unit>
void launch_box(const char* name, const Box& box, const void* in, void* out, void* stream) {
  with_index(box.units, [&](auto index) {
    using Index = decltype(index);
    BoxDivisors<Index> divisors;
    for (std::int64_t d = 0; d < box.rank; ++d) divisors.extent[d] = FastDiv<Index>(box.extent[d]);
    launch(name, copy_box<Unit, Index>, grid_for(box.units), dim3(kThreads), stream, box, divisors,
           static_cast<const Unit*>(in), static_cast<Unit*>(out));
  });
}

void copy(const char* name, int itemsize, const Shape& whole, const Shape& part,
          const SliceStart* starts, bool starts_in, const void* in, void* out, void* stream) {
  Box box = make_box(itemsize, whole, part, starts, starts_in);
  for (std::int64_t d = 0; d < box.rank; ++d) box.units *= box.extent[d];
  if (box.units == 0) return;
  // Literal starts are added here; the other starts remain.
  std::int64_t known = 0;
  int left = 0;
  for (std::int64_t s = 0; s < box.starts; ++s) {
    if (box.start[s].data == nullptr)
      known += box.start[s].stride;
    else
      box.start[left++] = box.start[s];
  }
  box.starts = left;
  if (starts_in)
    in = static_cast<const char*>(in) + known;
  else
    out = static_cast<char*>(out) + known;
  const int unit = unit_of(box, itemsize, in, out);
  const std::int64_t inner = box.rank - 1;
  box.units = box.units * itemsize / unit;
  if (unit != itemsize) {
    box.extent[inner] = box.extent[inner] * itemsize / unit;
    box.in_stride[inner] = box.out_stride[inner] = unit;
  }
  for (std::int64_t d = 0; d < box.rank; ++d) {
    box.in_stride[d] /= unit;
    box.out_stride[d] /= unit;
  }
  for (std::int64_t s = 0; s < box.starts; ++s) box.start[s].stride /= unit;
  if (unit == 16) return launch_box<Bytes16>(name, box, in, out, stream);
  const bool launched =
      with_bits(unit, [&]<class Unit>() { launch_box<Unit>(name, box, in, out, stream); });
  check_launched(name, launched);
}

}  // namespace

void dynamic_slice(int itemsize, const Shape& whole, const Shape& part, const SliceStart* starts,
                   const void* in, void* out, void* stream) {
  copy("dynamic_slice", itemsize, whole, part, starts, true, in, out, stream);
}

void dynamic_update_slice(int itemsize, const Shape& whole, const Shape& part,
                          const SliceStart* starts, const void* update, void* out, void* stream) {
  copy("dynamic_update_slice", itemsize, whole, part, starts, false, update, out, stream);
}

}  // namespace shmap::cuda
