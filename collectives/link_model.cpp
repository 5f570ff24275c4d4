#include "collectives/link_model.h"

#include <algorithm>
#include <bit>

namespace shmap {

using namespace link_model;

double in_process_us(CollectiveKind kind, int ranks, std::int64_t in_bytes,
                     std::int64_t out_bytes) {
  const double others = ranks - 1;
  const auto in = static_cast<double>(in_bytes), out = static_cast<double>(out_bytes);
  switch (kind) {
    case CollectiveKind::all_reduce:  // each reads every block
      return kKernelUs + others * in / kKernelLink;
    case CollectiveKind::reduce_scatter:
      return kKernelUs + others * out / kKernelLink;
    case CollectiveKind::all_gather:  // one copy after another, into one block
      return others * kCopyUs + others * in / kLink;
    case CollectiveKind::all_to_all:
      return others * kCopyUs + others / ranks * out / kLink;
    case CollectiveKind::permute:
      return kCopyUs + out / kLink;
    case CollectiveKind::broadcast:  // all of them read one GPU's memory
      return kCopyUs + others * out / kLink;
  }
  return 0;
}

double nccl_us(CollectiveKind kind, int ranks, std::int64_t in_bytes, std::int64_t out_bytes) {
  const double others = ranks - 1;
  const auto in = static_cast<double>(in_bytes), out = static_cast<double>(out_bytes);
  // The time of `steps` steps in sequence, with `bytes` into each GPU, by the faster of two
  // protocols.
  const auto in_steps = [](double steps, double bytes) {
    return std::min(kLowLatencyUs + steps * kLowLatencyStepUs + bytes / kLowLatencyLink,
                    kSimpleUs + steps * kSimpleStepUs + bytes / kLink);
  };
  switch (kind) {
    case CollectiveKind::all_reduce: {
      const double ring = in_steps(2 * others, 2 * others / ranks * in);
      const double depth = std::bit_width(static_cast<unsigned>(ranks - 1));
      return std::min(ring, in_steps(2 * depth, 2 * in));  // a tree
    }
    case CollectiveKind::reduce_scatter:
      return in_steps(others, others * out);
    case CollectiveKind::all_gather:
      return in_steps(others, others * in);
    case CollectiveKind::broadcast:
      return in_steps(others, out);
    case CollectiveKind::all_to_all:  // sends and receives have one protocol
      return kSimpleUs + kSimpleStepUs + others / ranks * out / kLink;
    case CollectiveKind::permute:
      return kSimpleUs + kSimpleStepUs + out / kLink;
  }
  return 0;
}

bool goes_in_process(CollectiveKind kind, int ranks, std::int64_t in_bytes,
                     std::int64_t out_bytes) {
  return in_process_us(kind, ranks, in_bytes, out_bytes) <=
         nccl_us(kind, ranks, in_bytes, out_bytes);
}

}  // namespace shmap
