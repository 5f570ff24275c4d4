// What a collective between GPUs that reach each other's memory takes, as a model says it: for the
// choice of what carries it.
//
// Nothing of it was measured on GPUs by this project. A latency and a bandwidth for each way, of
// H100 and H200 behind NVLink switches: NCCL's are the constants of its own tuning model and the
// bus bandwidth that nccl-tests reports; those of copies and kernels are what vendors' and others'
// benchmarks of peer access report, rounded up. A slower link moves the sizes at which ways
// part; which way is taken at either end stays.
#pragma once
#include <cstdint>

#include "collectives/communicator.h"

namespace shmap {

namespace link_model {
// Microseconds.
constexpr double kCopyUs = 2.5;    // a copy by a copy engine, from the event that it waits for
constexpr double kKernelUs = 6.0;  // a kernel that reads the others' blocks, likewise
// NCCL, by its protocols: until a group's kernels run, and for each step of a ring or tree.
constexpr double kLowLatencyUs = 6.6, kLowLatencyStepUs = 0.6;
constexpr double kSimpleUs = 8.4, kSimpleStepUs = 3.4;
// Bytes a microsecond, into one GPU.
constexpr double kLink = 370e3;                // copies, and NCCL's simple protocol
constexpr double kLowLatencyLink = kLink / 2;  // every other word is a flag
constexpr double kKernelLink = 250e3;          // loads by a kernel: a guess, on the safe side
}  // namespace link_model

// Microseconds until the last of `ranks` (at least 2) has its result.
double in_process_us(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes);
double nccl_us(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes);

// True where the process's own copies and kernels are to carry it. A function of these numbers
// alone, so that every run, and a captured one, takes the same way. Of two ways that take the same
// time copies are taken: they leave the processors to arithmetic.
bool goes_in_process(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes);

}  // namespace shmap
