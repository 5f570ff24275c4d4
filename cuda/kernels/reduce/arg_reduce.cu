// The index of the largest or smallest element. A candidate is a value and its index; the better of
// two candidates does not depend on the order of comparisons, so the result does not depend on the
// plan.
#include <string>

#include "cuda/kernels/embedded/warp.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/reduce_plan.h"
#include "cuda/kernels/reduce/reducer.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

constexpr std::int64_t kNone = -1;  // the index where there is no candidate

template <class A>
struct Candidate {
  A value;
  std::int64_t index;
};

template <bool largest, class A>
SHMAP_FN bool goes_before(Candidate<A> a, Candidate<A> b) {
  if (a.index == kNone || b.index == kNone) return b.index == kNone && a.index != kNone;
  if constexpr (scalar::is_float<A>) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan;
    if (a_nan) return a.index < b.index;
  }
  if (a.value == b.value) return a.index < b.index;
  return largest ? a.value > b.value : a.value < b.value;
}

template <bool largest, class A>
__device__ Candidate<A> best_of_block(Candidate<A> mine, int share, int depth, int step) {
  __shared__ A values[kThreads];
  __shared__ std::int64_t indices[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  values[t] = mine.value;
  indices[t] = mine.index;
  __syncthreads();
  int active = depth;
  while (active > 1) {
    const int half = (active + 1) / 2;
    if (share + half < active) {
      const int other = t + half * step;
      const Candidate<A> rival = {values[other], indices[other]};
      if (goes_before<largest>(rival, mine)) mine = rival;
      values[t] = mine.value;
      indices[t] = mine.index;
    }
    __syncthreads();
    active = half;
  }
  return mine;
}

// Each `blockIdx.y` handles one part of the elements. Writes candidates to values and indices
// [parts, results], or the index alone to `out` (i64 if wide). `known`, unless null, has the
// indices of the elements.
template <bool largest, class In>
__global__ void __launch_bounds__(kThreads)
    arg_reduce_tiles(const In* in, const std::int64_t* known, void* out, bool wide,
                     ReducedAs<In>* values, std::int64_t* indices,
                     const SHMAP_CONSTANT ReduceLayout layout, std::int64_t chunk, int width,
                     int depth, bool along) {
  after_predecessor();
  using A = ReducedAs<In>;
  const int t = static_cast<int>(threadIdx.x);
  const int share = along ? t % depth : t / width;
  const std::int64_t result =
      static_cast<std::int64_t>(blockIdx.x) * width + (along ? t / depth : t % width);
  const bool active = share < depth && result < layout.results;
  Candidate<A> best = {A{0}, kNone};
  if (active) {
    const std::int64_t base = layout.kept_offset(result), stride = layout.reduced_stride[0];
    const std::int64_t begin = blockIdx.y * chunk;
    const std::int64_t end = begin + chunk < layout.elements ? begin + chunk : layout.elements;
    for (std::int64_t i = begin + share; i < end; i += depth) {
      const std::int64_t at = base + i * stride;
      const Candidate<A> next = {static_cast<A>(scalar::widen(in[at])),
                                 known != nullptr ? known[at] : i};
      if (goes_before<largest>(next, best)) best = next;
    }
  }
  best = best_of_block<largest>(best, share, depth, along ? 1 : width);
  if (share != 0 || !active) return;
  if (values != nullptr) {
    values[blockIdx.y * layout.results + result] = best.value;
    indices[blockIdx.y * layout.results + result] = best.index;
  } else if (wide) {
    static_cast<std::int64_t*>(out)[result] = best.index;
  } else {
    static_cast<std::int32_t*>(out)[result] = static_cast<std::int32_t>(best.index);
  }
}

// The runs of the reduction; an extent of 1 needs no reduction and gives index 0.
ReduceLayout layout_of(std::int64_t outer, std::int64_t reduced, std::int64_t inner) {
  ReduceRuns runs;
  runs.count = 1;
  runs.kept[0] = outer;
  runs.reduced[0] = reduced;
  runs.kept[1] = inner;
  return ReduceLayout(runs);
}

// A plan that loads single elements, whatever their size.
ReducePlan plan_of(const ReduceLayout& layout) { return ReducePlan(layout, 4); }

template <bool largest, class In, class A>
void launch_part(const ReduceLayout& layout, const ReducePlan& plan, const In* in,
                 const std::int64_t* known, void* out, bool wide, A* values, std::int64_t* indices,
                 void* stream) {
  launch("argmax", arg_reduce_tiles<largest, In>, plan.grid(), dim3(kThreads), stream, in, known,
         out, wide, values, indices, layout, plan.chunk, plan.width, plan.depth, plan.along);
}

template <bool largest, class T>
void arg_reduce_type(const ReduceLayout& layout, const T* in, void* out, bool wide, void* scratch,
                     void* stream) {
  using A = ReducedAs<T>;
  const ReducePlan plan = plan_of(layout);
  const std::int64_t* const unknown = nullptr;
  if (plan.parts == 1) {
    return launch_part<largest>(layout, plan, in, unknown, out, wide, static_cast<A*>(nullptr),
                                static_cast<std::int64_t*>(nullptr), stream);
  }
  auto* const indices = static_cast<std::int64_t*>(scratch);
  A* const values = reinterpret_cast<A*>(indices + plan.parts * layout.results);
  launch_part<largest>(layout, plan, in, unknown, out, wide, values, indices, stream);
  const ReduceLayout last = layout_of(1, plan.parts, layout.results);
  launch_part<largest>(last, ReducePlan::of_partials(last), static_cast<const A*>(values),
                       static_cast<const std::int64_t*>(indices), out, wide,
                       static_cast<A*>(nullptr), static_cast<std::int64_t*>(nullptr), stream);
}

}  // namespace

std::int64_t arg_reduce_scratch(std::int64_t outer, std::int64_t reduced, std::int64_t inner) {
  const ReduceLayout layout = layout_of(outer, reduced, inner);
  if (layout.results * layout.elements == 0) return 0;
  const ReducePlan plan = plan_of(layout);
  return plan.parts > 1 ? plan.parts * layout.results * 16 : 0;
}

void arg_reduce(ArgReduction op, DType dtype, DType index_dtype, std::int64_t outer,
                std::int64_t reduced, std::int64_t inner, const void* in, void* out, void* scratch,
                void* stream) {
  const ReduceLayout layout = layout_of(outer, reduced, inner);
  if (layout.results == 0) return;
  const bool wide = index_dtype == DType::i64;
  const bool known = with_type(dtype, [&]<class T>() {
    const auto* const from = static_cast<const T*>(in);
    if (op == ArgReduction::argmax)
      arg_reduce_type<true>(layout, from, out, wide, scratch, stream);
    else
      arg_reduce_type<false>(layout, from, out, wide, scratch, stream);
  });
  if (!known || (!wide && index_dtype != DType::i32)) {
    throw TypeError(std::string(op == ArgReduction::argmax ? "argmax" : "argmin") + " of " +
                    to_string(dtype) + " with indices of " + to_string(index_dtype) +
                    " does not exist: an ordered dtype is wanted, and i32 or i64 indices");
  }
}

}  // namespace shmap::cuda
