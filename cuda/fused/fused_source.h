// Generates the source of one CUDA kernel from a fused program (core/runtime/fused_program.h).
//
// Every operation is the function of its name in cuda/kernels/embedded/scalar.h, and each result is
// rounded to its dtype before the next operation reads it: a kernel gives the same bits as the
// single operations. A reduction along a row has an order that depends on the program alone. For
// rows of up to 768 elements it is the order of a reduction alone
// (cuda/kernels/reduce/reduce_plan.h); for longer rows each thread reduces its elements in their
// order, and a balanced tree combines the threads.
//
// There are three forms:
// - flat: values are full or scalar; the kernel does not depend on the shape, so that one source
//   serves all sizes;
// - cells: full results from operands that include rows and columns, or whose rows repeat;
// - rows: programs with reductions or with results of rows. Several threads share a row: up to a
//   warp for short rows, a block of up to 1024 for long ones. Values of a row that a later step
//   needs stay in registers, so that memory is read and written once. Rows too long for that are
//   read again by every step.
//
// The kernel is `extern "C" shmap_fused(Args)`: one struct of 8-byte words, passed by value. The
// words are the count (of elements, or of rows), then each operand's address (for an operand of one
// element two words: its address or null, and the bits of its value), then each result's address.
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
  int lanes = 0;           // in the form rows: threads that share a row
  bool resident = true;    // in the form rows: memory is read once
  std::int64_t count = 0;  // the first word of the arguments
  // The most blocks that have work; in a smaller grid each does more of it. 0: nothing to do.
  std::int64_t blocks = 0;
  std::vector<bool> scalars;  // for each operand: true if it has one element, and thus two words
  // The alignment that the addresses of operands and results must have, in bytes.
  std::vector<int> operand_alignment, result_alignment;
};

inline constexpr const char* kFusedKernel = "shmap_fused";

// `aligned`: addresses may be multiples of 16 bytes; else only of their dtypes' sizes. TypeError
// where fused programs do not take one of the primitives.
FusedSource make_fused_source(const FusedProgram& program, bool aligned);

}  // namespace shmap::cuda
