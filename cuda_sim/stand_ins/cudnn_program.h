// Computes a graph of cuDNN's operations by plain loops over tensors of four dims.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "cuda/libraries/cudnn_names.h"

namespace shmap_sim {

using Four = std::array<std::int64_t, 4>;

struct DnnTensor {
  std::int64_t id = 0;
  shmap::cudnn::Data type = {};
  Four dims{}, strides{};
  bool is_virtual = false, is_by_value = false;
};

struct DnnOperation {
  shmap::cudnn::Kind kind = {};  // of an operation
  shmap::cudnn::Pointwise mode = {};
  shmap::cudnn::Reduction reduction = {};
  int axis = -1;
  std::vector<DnnTensor> x;  // operands: x, b, t; a and b of a product
  DnnTensor y;
};

// True if the dims of the operands and of the result match as cuDNN requires. A product's second
// operand may have fewer heads, each for a run of heads of the first; a sum over heads likewise.
bool fits(const DnnOperation& operation);

// Runs the operations in their order, on the tensors' memory. `backwards`: sums in reverse order.
void run(const std::vector<DnnOperation>& operations,
         const std::map<std::int64_t, void*>& addresses, bool backwards);

}  // namespace shmap_sim
