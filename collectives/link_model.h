// A model of the time that a collective takes between GPUs which can access each other's memory,
// for the choice of the communicator.
//
// This project has measured none of these times on GPUs. The model has a latency and a bandwidth
// for each carrier, for H100 and H200 behind NVLink switches. For NCCL these are the constants of
// its own tuning model and the bus bandwidth that nccl-tests reports; for copies and kernels they
// are published benchmarks of peer access, rounded up. On a slower link the sizes at which the
// choice changes would be different; the choices for very small and very large sizes would be the
// same.
#pragma once
#include <cstdint>

#include "collectives/communicator.h"

namespace shmap {

namespace link_model {
// Microseconds.
constexpr double kCopyUs = 2.5;    // a copy by a copy engine, after the event that it waits for
constexpr double kKernelUs = 6.0;  // a kernel that reads other GPUs' blocks, after that event
// NCCL, by protocol: the time until a group's kernels run, and the time of a step of a ring or
// tree.
constexpr double kLowLatencyUs = 6.6, kLowLatencyStepUs = 0.6;
constexpr double kSimpleUs = 8.4, kSimpleStepUs = 3.4;
// Bytes a microsecond, into one GPU.
constexpr double kLink = 370e3;                // copies, and NCCL's simple protocol
constexpr double kLowLatencyLink = kLink / 2;  // every other word is a flag
constexpr double kKernelLink = 250e3;          // loads by a kernel: a conservative guess
}  // namespace link_model

// The microseconds until the last of `ranks` (at least 2) ranks has its result.
double in_process_us(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes);
double nccl_us(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes);

// True if the process's own copies and kernels should carry the collective. Depends only on the
// arguments, so that every run, captured or not, makes the same choice. True if both take the same
// time: copies leave the multiprocessors free.
bool goes_in_process(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes);

}  // namespace shmap
