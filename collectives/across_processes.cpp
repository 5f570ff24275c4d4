#include "collectives/across_processes.h"

#include "collectives/cross_collectives.h"

namespace shmap {

namespace {

// What must be equal in all processes besides bytes, ranks and the operation.
std::uint64_t code(Reduction op, DType dtype) {
  return static_cast<std::uint64_t>(op) << 8 | static_cast<std::uint64_t>(dtype);
}

class AcrossProcesses final : public Communicator {
 public:
  void all_reduce(const GroupBlocks& g, Reduction op, DType dtype) override {
    CrossCall call(g, CollectiveKind::all_reduce, code(op, dtype), short_name(dtype));
    cross_all_reduce(g, op, dtype, call);
  }
  void all_gather(const GroupBlocks& g, const Interleaved& parts) override {
    CrossCall call(g, CollectiveKind::all_gather, static_cast<std::uint64_t>(parts.piece), "");
    cross_all_gather(g, parts, call);
  }
  void reduce_scatter(const GroupBlocks& g, const Interleaved& parts, Reduction op,
                      DType dtype) override {
    CrossCall call(g, CollectiveKind::reduce_scatter,
                   code(op, dtype) << 32 ^ static_cast<std::uint64_t>(parts.piece),
                   short_name(dtype));
    cross_reduce_scatter(g, parts, op, dtype, call);
  }
  void all_to_all(const GroupBlocks& g, const Exchange& exchange) override {
    CrossCall call(g, CollectiveKind::all_to_all,
                   static_cast<std::uint64_t>(exchange.src_step * 31 + exchange.dst_step), "");
    cross_all_to_all(g, exchange, call);
  }
  void permute(const GroupBlocks& g, std::span<const int> source) override {
    CrossCall call(g, CollectiveKind::permute, 0, "", source);
    cross_permute(g, source, call);
  }
  void broadcast(const GroupBlocks& g, std::uint32_t rank) override {
    CrossCall call(g, CollectiveKind::broadcast, rank, "");
    cross_broadcast(g, rank, call);
  }
};

}  // namespace

Communicator& across_processes() {
  static auto& all = *new AcrossProcesses();  // static variables may still compute at exit
  return all;
}

}  // namespace shmap
