// The kernels of reductions, for the .cu files of their domains.
//
// Operation: Acc<T>, the type in which elements of a storage type are reduced; neutral<A>(); run(a,
// b). A block's threads are `width` results times `depth` shares of each result's elements. Along a
// row neighbouring threads share one result, down columns they have separate results, so that in
// both cases neighbours read neighbours. Where there are few results, `blockIdx.y` counts parts of
// their elements, whose partial results a second launch reduces.
#pragma once
#include <cstdint>
#include <type_traits>

#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/embedded/warp.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/reduce/reduce_call.h"
#include "cuda/kernels/reduce/reduce_plan.h"
#include "cuda/kernels/reduce/reducer.h"

namespace shmap::cuda {
namespace {

// Reduces the `depth` values of each result to one, in a tree of halves; the thread of share 0 gets
// the result. `step` is the distance between a result's threads; with step 1 and a depth that is a
// power of two, the values are exchanged in registers.
template <class Op, class A>
__device__ A combine_block(A value, int share, int depth, int step) {
  __shared__ A held[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  if (step == 1 && (depth & (depth - 1)) == 0) {
    for (int half = (depth < kWarp ? depth : kWarp) / 2; half > 0; half /= 2)
      value = Op::run(value, shuffle_down(value, half));
    if (depth <= kWarp) return value;
    if (t % kWarp == 0) held[t / kWarp] = value;
    __syncthreads();
    if (share == 0) {
      for (int w = 1; w < depth / kWarp; ++w) value = Op::run(value, held[t / kWarp + w]);
    }
    return value;
  }
  held[t] = value;
  __syncthreads();
  int active = depth;
  while (active > 1) {
    const int half = (active + 1) / 2;
    if (share + half < active) {
      value = Op::run(value, held[t + half * step]);
      held[t] = value;
    }
    __syncthreads();
    active = half;
  }
  return value;
}

// Reduces in[rows, length] to out[rows]; a thread handles kItems neighbours at a time. The elements
// that a thread handles do not depend on the row's address; only the loads do.
template <class Op, class In, class Out>
__global__ void __launch_bounds__(kThreads)
    reduce_rows(const In* in, Out* out, typename Op::template Acc<In>* partials, std::int64_t rows,
                std::int64_t length, std::int64_t chunk, int depth) {
  after_predecessor();
  using A = typename Op::template Acc<In>;
  constexpr int kItems = 16 / static_cast<int>(sizeof(In));
  struct alignas(16) Pack {
    In item[kItems];
  };
  const int t = static_cast<int>(threadIdx.x), share = t % depth;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / depth) + t / depth;
  A acc[kItems];
  for (int j = 0; j < kItems; ++j) acc[j] = Op::template neutral<A>();
  if (row < rows) {
    const In* const p = in + row * length;
    const bool aligned = (reinterpret_cast<std::uintptr_t>(p) & 15) == 0;
    const std::int64_t begin = blockIdx.y * chunk;
    const std::int64_t end = begin + chunk < length ? begin + chunk : length;
    const std::int64_t step = static_cast<std::int64_t>(depth) * kItems;
    std::int64_t i = begin + share * kItems;
    if (aligned) {
      for (; i + 3 * step + kItems <= end; i += 4 * step) {
        Pack pack[4];
        for (int u = 0; u < 4; ++u) pack[u] = *reinterpret_cast<const Pack*>(p + i + u * step);
        for (int u = 0; u < 4; ++u)
          for (int j = 0; j < kItems; ++j)
            acc[j] = Op::run(acc[j], static_cast<A>(scalar::widen(pack[u].item[j])));
      }
    }
    for (; i < end; i += step) {
      for (int j = 0; j < kItems; ++j)
        if (i + j < end) acc[j] = Op::run(acc[j], static_cast<A>(scalar::widen(p[i + j])));
    }
  }
  for (int half = kItems / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) acc[j] = Op::run(acc[j], acc[j + half]);
  const A result = combine_block<Op>(acc[0], share, depth, 1);
  if (share != 0 || row >= rows) return;
  if (partials != nullptr)
    partials[blockIdx.y * rows + row] = result;
  else
    out[row] = scalar::narrow<Out>(static_cast<scalar::Compute<Out>>(result));
}

// Reduces any runs: in -> out[results].
template <class Op, class In, class Out>
__global__ void __launch_bounds__(kThreads)
    reduce_tiles(const In* in, Out* out, typename Op::template Acc<In>* partials,
                 const SHMAP_CONSTANT ReduceLayout layout, std::int64_t chunk, int width, int depth,
                 bool along) {
  after_predecessor();
  using A = typename Op::template Acc<In>;
  const int t = static_cast<int>(threadIdx.x);
  const int share = along ? t % depth : t / width;
  const std::int64_t result =
      static_cast<std::int64_t>(blockIdx.x) * width + (along ? t / depth : t % width);
  const bool active = share < depth && result < layout.results;
  A acc[4];
  for (int u = 0; u < 4; ++u) acc[u] = Op::template neutral<A>();
  if (active) {
    const In* const p = in + layout.kept_offset(result);
    const std::int64_t begin = blockIdx.y * chunk;
    const std::int64_t end = begin + chunk < layout.elements ? begin + chunk : layout.elements;
    std::int64_t i = begin + share;
    if (layout.count == 1) {
      const std::int64_t stride = layout.reduced_stride[0], step = depth * stride;
      const In* q = p + i * stride;
      for (; i + 3 * depth < end; i += 4 * depth, q += 4 * step) {
        In item[4];
        for (int u = 0; u < 4; ++u) item[u] = q[u * step];
        for (int u = 0; u < 4; ++u)
          acc[u] = Op::run(acc[u], static_cast<A>(scalar::widen(item[u])));
      }
      for (int u = 0; u < 3; ++u, i += depth, q += step)
        if (i < end) acc[u] = Op::run(acc[u], static_cast<A>(scalar::widen(*q)));
    } else if (i < end) {
      ReduceCursor at(layout, i, depth);
      for (int u = 0; i < end; i += depth, u = (u + 1) % 2) {
        const A x = static_cast<A>(scalar::widen(p[at.offset]));
        if (u == 0)
          acc[0] = Op::run(acc[0], x);
        else
          acc[1] = Op::run(acc[1], x);
        at.advance(layout);
      }
    }
  }
  const A mine = Op::run(Op::run(acc[0], acc[1]), Op::run(acc[2], acc[3]));
  const A whole = combine_block<Op>(mine, share, depth, along ? 1 : width);
  if (share != 0 || !active) return;
  if (partials != nullptr)
    partials[blockIdx.y * layout.results + result] = whole;
  else
    out[result] = scalar::narrow<Out>(static_cast<scalar::Compute<Out>>(whole));
}

template <class Op, class In, class Out, class A>
void launch_tiles(const ReduceLayout& layout, const ReducePlan& plan, const In* in, Out* out,
                  A* partials, void* stream) {
  launch("reduce", reduce_tiles<Op, In, Out>, plan.grid(), dim3(kThreads), stream, in, out,
         partials, layout, plan.chunk, plan.width, plan.depth, plan.along);
}

// The whole reduction of storage type T; Op: an operation of cuda/kernels/embedded/reduction.h.
template <class Op, class T>
void reduce_type(DType dtype, const ReduceCall& call) {
  using R = Reducer<Op>;
  using A = typename R::template Acc<T>;
  const ReduceLayout layout(call.runs);
  auto* const to = static_cast<T*>(call.out);
  if (layout.results == 0) return;
  if (layout.elements == 0) {
    auto identity = Op::template start<scalar::Compute<T>>();
    identity += 0;  // turns -0, with which sums start, into 0
    if (dtype == DType::bool_) identity = identity != 0;
    const T stored = scalar::narrow<T>(identity);
    return fill(to, {&stored, Operand::literal}, static_cast<int>(sizeof(T)), layout.results,
                call.stream);
  }
  const ReducePlan plan(layout, static_cast<int>(sizeof(T)));
  A* const partials = plan.parts > 1 ? static_cast<A*>(call.scratch) : nullptr;
  const auto* const from = static_cast<const T*>(call.in);
  if (plan.rows) {
    launch("reduce", reduce_rows<R, T, T>, plan.grid(), dim3(kThreads), call.stream, from, to,
           partials, layout.results, layout.elements, plan.chunk, plan.depth);
  } else {
    launch_tiles<R>(layout, plan, from, to, partials, call.stream);
  }
  if (partials == nullptr) return;
  ReduceRuns columns;
  columns.count = 1;
  columns.reduced[0] = plan.parts;
  columns.kept[1] = layout.results;
  const ReduceLayout last(columns);
  launch_tiles<R>(last, ReducePlan::of_partials(last), static_cast<const A*>(partials), to,
                  static_cast<A*>(nullptr), call.stream);
}

// Runs the reduction `op`, a row of that domain.
template <Domain domain, class T>
void reduce_row(Reduction op, DType dtype, const ReduceCall& call) {
#define SHMAP_CASE(name, its_domain, primitive) \
  if constexpr (Domain::its_domain == domain)   \
    if (op == Reduction::name) reduce_type<primitive, T>(dtype, call);
  SHMAP_REDUCTIONS(SHMAP_CASE)
#undef SHMAP_CASE
}

}  // namespace
}  // namespace shmap::cuda
