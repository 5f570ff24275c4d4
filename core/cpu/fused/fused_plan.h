// FusedStepList: a fused program as calls of raw kernels over tiles of its space, with every value
// in its place: in an operand, in a result, or in a buffer of the nearest caches.
//
// A tile is some whole rows, or one long row cut in blocks of columns. Its steps are in stages: an
// even stage works on values of rows (one element a row of the tile) and reduces whole rows, an odd
// one on full values, block by block. What one stage makes for a later one is kept for a whole row,
// the rest for a block alone.
#pragma once
#include <cstdint>
#include <vector>

#include "core/cpu/kernels/binary.h"
#include "core/cpu/kernels/chain.h"
#include "core/cpu/kernels/expand.h"
#include "core/cpu/kernels/reduce.h"
#include "core/cpu/kernels/store_around.h"
#include "core/cpu/kernels/unary.h"
#include "core/cpu/ops/random_block.h"
#include "core/runtime/fused_program.h"

namespace shmap::cpu {

// Where a value lies: base + offset + row * row_stride + col * col_stride, of the tile's first row
// and the block's first column; the tile's other rows are tile_stride further each. In bytes.
struct FusedPlace {
  std::int32_t base = 0;  // kConstants, kScratch, then operands, then results
  bool scalar = false;    // one element for the whole run
  std::int64_t offset = 0, row_stride = 0, tile_stride = 0, col_stride = 0;
};
inline constexpr int kFusedConstants = 0, kFusedScratch = 1, kFusedOperands = 2;

struct FusedStep {
  enum Kind : std::uint8_t {
    unary,   // casts too
    binary,  // comparisons too
    select,  // a: predicate, b: on_false, c: on_true
    clamp,   // a: low, b: x, c: high
    reduce,
    reduce_chain,  // of a: a chain's values, reduced along each row; no one stores them
    expand_row,    // each row's element along the row
    expand_col,    // the columns' elements in each row
    expand_one,
    store,         // a copy
    store_around,  // a copy past the caches
    chain,         // of a: several operations in one pass; `chain_ops` has the others' operands
    draw,          // random bits of the key a; b: the first index, where the draw has one
  };
  Kind kind = unary;
  bool by_row = false;  // one call for each row of the tile
  bool around = false;  // of a chain: its result goes past the caches
  bool bound = false;   // of a chain: its operations' others are constants alone
  std::int8_t itemsize = 0;
  DType dtype = DType::f32;
  ChainCode code = ChainCode::none;  // which operation of a chain it may be
  std::int32_t chain_begin = 0, chain_count = 0;
  std::int32_t drawn = -1;  // of a draw: which of `draws`
  union {
    UnaryFn one = nullptr;
    BinaryFn two;
    ReduceFn reducer;
    ExpandFn expand;
    ChainFn chained;
    ChainFoldFn folded;
  };
  FusedPlace a, b, c, out;
};

struct FusedChainOp {
  ChainCode code;
  ChainForm form;
  FusedPlace other;
};

struct FusedDraw {
  RandomBlock block;
  ThreefryOut to;
  bool each_row, has_first;  // a key for each row, whose numbers begin anew; a first index
};

struct FusedStepList {
  std::int64_t rows, cols;
  std::int64_t tile_rows;    // whole rows in a tile; 1 where there are blocks of columns
  std::int64_t block_cols;   // columns in a block
  std::int64_t blocks;       // blocks in a row
  std::int64_t units;        // of work to be shared out: tiles, or blocks of columns where `split`
  bool split;                // a row's blocks may be shared out
  std::int64_t scratch = 0;  // bytes
  std::vector<FusedStep> prologue;          // once a call: values of columns, and scalars
  std::vector<std::int64_t> prologue_size;  // elements of each
  std::vector<FusedStep> steps;
  std::vector<FusedChainOp> chain_ops;
  std::vector<FusedDraw> draws;
  std::vector<std::int32_t> stages;  // where each stage begins in `steps`, and the end
  std::vector<std::uint64_t> constants;
  // As chain_ops: with their addresses, where a step is `bound`.
  std::vector<ChainOp> bound_ops;
  bool stores_around = false;
  // Full operands that come from memory, and how many bytes of the next tile each step asks for.
  struct Prefetch {
    std::int32_t base;
    std::int32_t itemsize;
  };
  std::vector<Prefetch> prefetch;
  std::int64_t prefetch_bytes = 0;
  // Operands which result 0 may overwrite where it is written as it is made.
  std::vector<bool> may_overwrite;
};

// How result 0 is written.
enum class FusedWrite : std::uint8_t {
  plain,     // it is no operand's memory
  in_place,  // it is an operand's memory, and may_overwrite said that it may be
  staged,    // it is an operand's memory: written when all of a tile has been read
};

// Full results of `around_bytes` and more are written past the caches.
// by_rows: tiles are a power of two of whole rows, or parts of one, also where rows don't matter.
FusedStepList make_fused_steps(const FusedProgram& program, FusedWrite write,
                               std::int64_t around_bytes = store_around_bytes(),
                               bool by_rows = false);

// Runs units [begin, end).
void run_fused_steps(const FusedStepList& list, std::span<const void* const> operands,
                     std::span<void* const> results, std::int64_t begin, std::int64_t end);

}  // namespace shmap::cpu
