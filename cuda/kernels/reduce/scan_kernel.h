// The kernels of scans, for the .cu files of their operations.
//
// Operation: Acc<T>, the type in which elements of a storage type are accumulated; run(a, b),
// associative up to rounding. A few long lines take three launches: the total of each part; running
// totals over a line's parts; and the parts again, each starting from the preceding total.
#pragma once
#include <cstdint>

#include "cuda/kernels/embedded/warp.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/reduce/scan_call.h"
#include "cuda/kernels/reduce/scan_plan.h"

namespace shmap::cuda {
namespace {

template <class T, class A>
SHMAP_FN A accumulated(T x) {
  return static_cast<A>(scalar::widen(x));
}
template <class T, class A>
SHMAP_FN T stored(A x) {
  return scalar::narrow<T>(static_cast<scalar::Compute<T>>(x));
}

// Each thread handles a part of a line; neighbouring threads handle neighbouring lines. With
// totals_only, writes totals to totals[part, line]; else totals[part - 1, line] holds the preceding
// total.
template <class Op, class T, class A>
__global__ void __launch_bounds__(kThreads)
    scan_across(ScanPlan s, const T* in, T* out, A* totals, bool totals_only) {
  after_predecessor();
  const std::int64_t n = s.lines * s.parts;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t job = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; job < n;
       job += step) {
    const std::int64_t part = job / s.lines, line = job - part * s.lines;
    const std::int64_t begin = part * s.part_len;
    const std::int64_t end = begin + s.part_len < s.len ? begin + s.part_len : s.len;
    const std::int64_t stride = s.reverse != 0 ? -s.inner : s.inner;
    std::int64_t at = s.at(line, begin);
    const T head = in[at];
    A running = accumulated<T, A>(head);
    if (part > 0 && !totals_only) {
      running = Op::run(totals[job - s.lines], running);
      out[at] = stored<T>(running);
    } else if (!totals_only) {
      out[at] = head;
    }
    constexpr int kAhead = 4;  // items that are loaded before the first is stored
    std::int64_t i = begin + 1;
    for (; i + kAhead <= end; i += kAhead) {
      T item[kAhead];
      for (int j = 0; j < kAhead; ++j) item[j] = in[at + (j + 1) * stride];
      for (int j = 0; j < kAhead; ++j) {
        at += stride;
        running = Op::run(running, accumulated<T, A>(item[j]));
        if (!totals_only) out[at] = stored<T>(running);
      }
    }
    for (; i < end; ++i) {
      at += stride;
      running = Op::run(running, accumulated<T, A>(in[at]));
      if (!totals_only) out[at] = stored<T>(running);
    }
    if (totals_only) totals[job] = running;
  }
}

// Each block handles a part of a line, tile by tile: first each thread combines some neighbours,
// then the threads of each warp, then the warps. Threads beyond the part's end have no items.
template <class Op, class T, class A>
__global__ void __launch_bounds__(kThreads)
    scan_along(ScanPlan s, const T* in, T* out, A* totals, bool totals_only) {
  after_predecessor();
  constexpr int kItems = ScanPlan::kItems, kWarps = kThreads / kWarp;
  __shared__ A of_warp[kWarps];
  const int t = static_cast<int>(threadIdx.x), lane = t % kWarp, warp = t / kWarp;
  const std::int64_t part = blockIdx.x / s.lines, line = blockIdx.x - part * s.lines;
  const std::int64_t begin = part * s.part_len;
  const std::int64_t end = begin + s.part_len < s.len ? begin + s.part_len : s.len;
  bool carries = part > 0 && !totals_only;
  A carry = carries ? totals[blockIdx.x - s.lines] : A{};
  for (std::int64_t first = begin; first < end; first += ScanPlan::kTile) {
    const std::int64_t mine = first + t * kItems;
    T item[kItems];
    A running[kItems];
    for (int j = 0; j < kItems; ++j)
      if (mine + j < end) item[j] = in[s.at(line, mine + j)];
    running[0] = mine < end ? accumulated<T, A>(item[0]) : A{};
    for (int j = 1; j < kItems; ++j) {
      running[j] = running[j - 1];
      if (mine + j < end) running[j] = Op::run(running[j - 1], accumulated<T, A>(item[j]));
    }
    // Threads without items come last, so that they do not affect the others.
    A upto = running[kItems - 1];  // over the warp's threads up to this one
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const A below = shuffle_up(upto, distance);
      if (lane >= distance && mine < end) upto = Op::run(below, upto);
    }
    const std::int64_t first_of_warp = first + warp * kWarp * kItems;
    const std::int64_t left = end - first_of_warp;  // items of the warp
    const int last_lane = left >= kWarp * kItems ? kWarp - 1
                          : left > 0             ? static_cast<int>((left - 1) / kItems)
                                                 : 0;
    if (lane == last_lane) of_warp[warp] = upto;
    __syncthreads();
    const int warps = static_cast<int>((end - first + kWarp * kItems - 1) / (kWarp * kItems));
    bool has = carries;
    A before = carry;  // the result of all items before this thread's
    for (int w = 0; w < warp && w < warps; ++w) {
      before = has ? Op::run(before, of_warp[w]) : of_warp[w];
      has = true;
    }
    for (int w = 0; w < kWarps && w < warps; ++w) {
      carry = carries ? Op::run(carry, of_warp[w]) : of_warp[w];
      carries = true;
    }
    const A below = shuffle_up(upto, 1);
    if (lane > 0) {
      before = has ? Op::run(before, below) : below;
      has = true;
    }
    for (int j = 0; j < kItems && !totals_only; ++j) {
      if (mine + j >= end) continue;
      // The first item of a line is stored unchanged.
      out[s.at(line, mine + j)] = has      ? stored<T>(Op::run(before, running[j]))
                                  : j == 0 ? item[0]
                                           : stored<T>(running[j]);
    }
    __syncthreads();
  }
  if (totals_only && t == 0) totals[blockIdx.x] = carry;
}

// Replaces totals[part, line] by running totals over the parts.
template <class Op, class A>
__global__ void __launch_bounds__(kThreads)
    scan_totals(A* totals, std::int64_t lines, std::int64_t parts) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       line < lines; line += step) {
    constexpr int kAhead = 8;
    A running = totals[line];
    for (std::int64_t p = 1; p < parts; p += kAhead) {
      A total[kAhead];
      for (int j = 0; j < kAhead; ++j)
        if (p + j < parts) total[j] = totals[(p + j) * lines + line];
      for (int j = 0; j < kAhead; ++j) {
        if (p + j >= parts) break;
        running = Op::run(running, total[j]);
        totals[(p + j) * lines + line] = running;
      }
    }
  }
}

template <class Op, class T>
void scan_type(const ScanPlan& plan, const void* in, void* out, void* scratch, void* stream) {
  using A = typename Op::template Acc<T>;
  const std::int64_t jobs = plan.lines * plan.parts;
  const dim3 grid = plan.across != 0 ? grid_for(jobs) : grid_of("scan", jobs);
  const auto kernel = plan.across != 0 ? scan_across<Op, T, A> : scan_along<Op, T, A>;
  const auto* const from = static_cast<const T*>(in);
  auto* const to = static_cast<T*>(out);
  A* const totals = plan.parts > 1 ? static_cast<A*>(scratch) : nullptr;
  if (plan.parts > 1) {
    launch("scan: totals", kernel, grid, dim3(kThreads), stream, plan, from, to, totals, true);
    launch("scan: running totals", scan_totals<Op, A>, grid_for(plan.lines), dim3(kThreads), stream,
           totals, plan.lines, plan.parts);
  }
  launch("scan", kernel, grid, dim3(kThreads), stream, plan, from, to, totals, false);
}

}  // namespace
}  // namespace shmap::cuda
