// A fused program (core/runtime/fused_program.h) as the source of one CUDA kernel.
//
// Every operation is the function of its name in cuda/kernels/scalar.h, and each result is rounded
// to its dtype before the next operation reads it, so that a kernel gives the bits of the
// operations one by one. What is reduced along a row is put together in an order that depends on
// the program alone: for rows of up to 768 elements that of a reduction alone
// (cuda/kernels/reduce_plan.h), for longer ones each thread its elements in their order, then a
// balanced tree over threads.
//
// There are three forms:
// - flat: values are full or scalar; the shape is of no concern, and one source serves all sizes;
// - cells: full results, of operands of rows and columns too;
// - rows: with reductions, or with results of rows. Some threads share a row: up to a warp of them
//   where rows are short, a block of up to 1024 where they are long. What a later step needs of a
//   row is kept in registers, so that memory is read and written once. Rows too long for that are
//   read again by every step.
//
// The kernel is `extern "C" shmap_fused(Args)`: one struct of 8-byte words, passed by value. It has
// the count (elements, or rows), then each operand's address (of one element: its address or null,
// and the bits of its value), then each result's address.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/fused_program.h"

namespace shmap::cuda {

enum class FusedForm : std::uint8_t { flat, cells, rows };

struct FusedSource {
  std::string text;
  FusedForm form = FusedForm::flat;
  int vector = 1;          // elements that a thread loads and stores at once
  int threads = 256;       // in a block
  int lanes = 0;           // of rows: threads that share one
  bool resident = true;    // of rows: memory is read once
  std::int64_t count = 0;  // the first word of the arguments
  std::int64_t blocks =
      0;  // that have work of their own; with fewer, each does more. 0: nothing to do
  std::vector<bool> scalars;  // operands of one element, which have two words
  // What the addresses of operands and results must be multiples of.
  std::vector<int> operand_alignment, result_alignment;
  // An operand whose memory result 0 may not be: the kernel reads it after writing there.
  std::vector<bool> apart;
};

inline constexpr const char* kFusedKernel = "shmap_fused";

// `aligned`: addresses may be multiples of 16 bytes; else only of their dtypes' sizes. TypeError
// where the program holds a primitive that fused programs have not.
FusedSource make_fused_source(const FusedProgram& program, bool aligned);

}  // namespace shmap::cuda
