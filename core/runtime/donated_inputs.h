// DonatedInputs: which inputs a call of a segment gives up, so that their memory may be written.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/device/buffer.h"
#include "core/runtime/output_sets.h"
#include "shmap/array.h"

namespace shmap {

struct Block;

class DonatedInputs {
 public:
  // An input is donated if it is not mentioned later (`last`), `inputs` has the only handle to it,
  // and only its table names its buffers, besides the output set of an earlier launch whose result
  // it is. Valid until the next call.
  const std::vector<bool>& find(const std::vector<Array>& inputs, const std::vector<bool>& last,
                                const OutputSets& sets);

 private:
  bool holds_all_references(std::span<const Block> table, const OutputSets& sets);

  // Members only so that their memory is reused. held_: the buffers of an input, with the number of
  // its table's entries.
  std::vector<bool> donated_;
  std::vector<std::pair<const Buffer*, std::int32_t>> held_;
};

}  // namespace shmap
