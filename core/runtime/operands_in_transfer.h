// OperandsInTransfer: keeps the operands of collectives while their data may still move.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ir/node.h"
#include "core/runtime/segment.h"
#include "shmap/array.h"

namespace shmap {

// Holds the operands of the latest two collectives a little longer than necessary. If they were
// released at once, their memory would become the result of the next product, which would then wait
// for the transfer instead of overlapping it. Two suffice, since no more collectives are under way
// at once where products stand between them. In a capture the operands are released, and the layout
// keeps their memory where there is room.
class OperandsInTransfer {
 public:
  OperandsInTransfer() = default;
  OperandsInTransfer(const OperandsInTransfer&) = delete;
  OperandsInTransfer& operator=(const OperandsInTransfer&) = delete;
  ~OperandsInTransfer();

  // Called before step `step` runs, and after it.
  void before(const PlanStep& step);
  void hold(const PlanStep& step, std::vector<Array>& operands,
            std::span<StoredNode* const> results);

 private:
  struct OfCollective {
    std::vector<Array> arrays;
    std::vector<std::int64_t> on_tape;  // positions on the tape of a capture
    std::vector<int> results;
  };
  static void release(OfCollective& h);

  std::array<OfCollective, 2> held_;
  std::size_t next_ = 0;
};

}  // namespace shmap
