// FusedStepList: a fused program as a list of calls of raw kernels over tiles of its index space.
// Every value is in an operand, in a result, or in a buffer in the nearest caches.
//
// A tile has some whole rows, or is one long row cut into blocks of columns. Operands whose rows
// repeat (FusedProgram::Repeat) are read where they lie if tiles are cut such that each reads one
// row, or neighbouring rows, of each of them; otherwise a step copies the rows of the tile. The
// steps of a tile are in stages: an even stage works on values of rows (one element for each row of
// the tile) and reduces whole rows; an odd stage works on full values, block by block. A value that
// a later stage reads is kept for a whole row, any other value for one block only.
#pragma once
#include <cstdint>
#include <vector>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "core/cpu/kernels/fused/chain.h"
#include "core/cpu/kernels/move/expand.h"
#include "core/cpu/kernels/reduce/reduce.h"
#include "core/cpu/kernels/vector/store_around.h"
#include "core/cpu/ops/random_block.h"
#include "core/runtime/fused_program.h"

namespace shmap::cpu {

// The address of a value, in bytes: base + offset + row * row_stride + col * col_stride, for the
// first row of the tile and the first column of the block. Each further row of the tile adds
// tile_stride.
struct FusedAddress {
  std::int32_t base = 0;  // kConstants, kScratch, then operands, then results
  bool scalar = false;    // one element serves the whole run
  std::int64_t offset = 0, row_stride = 0, tile_stride = 0, col_stride = 0;
};
inline constexpr int kFusedConstants = 0, kFusedScratch = 1, kFusedOperands = 2;

struct FusedStep {
  enum Kind : std::uint8_t {
    unary,   // and casts
    binary,  // and comparisons
    select,  // a: predicate, b: on_false, c: on_true
    clamp,   // a: low, b: x, c: high
    reduce,
    reduce_chain,  // reduces the values of the chain `a` along each row without storing them
    expand_row,    // repeats each row's element along the row
    expand_col,    // repeats the elements of the columns in each row
    expand_one,
    repeat_rows,  // copies the rows of an operand that repeat, for the tile
    store,        // a copy
    chain,  // applies several operations to `a` in one pass; `chain_ops` has their other operands
    draw,   // draws random bits with the key `a`; b: the first index, if there is one
  };
  Kind kind = unary;
  bool by_row = false;  // one call for each row of the tile
  bool around = false;  // for a chain or a store: the result is written past the caches, unless it
                        // has the memory of an operand
  bool bound = false;   // for a chain: its other operands are all constants
  std::int8_t itemsize = 0;
  DType dtype = DType::f32;
  ChainCode code = ChainCode::none;  // the operation of a chain that the step may become
  std::int32_t chain_begin = 0, chain_count = 0;
  std::int32_t drawn = -1;     // for a draw: its index in `draws`
  std::int32_t repeated = -1;  // for repeat_rows: its index in `repeats`
  union {
    UnaryFn one = nullptr;
    BinaryFn two;
    ReduceFn reducer;
    ExpandFn expand;
    ChainFn chained;
    ChainFoldFn folded;
  };
  FusedAddress a, b, c, out;
};

struct FusedChainOp {
  ChainCode code;
  ChainForm form;
  FusedAddress other;
};

struct FusedDraw {
  RandomBlock block;
  DType to;
  bool each_row, has_first;  // one key for each row, whose numbers start anew; whether there is a
                             // first index
};

struct FusedStepList {
  std::int64_t rows = 0, cols = 0;
  std::int64_t tile_rows = 0;   // whole rows in a tile; 1 where there are blocks of columns
  std::int64_t block_cols = 0;  // columns in a block
  std::int64_t blocks = 0;      // blocks in a row
  std::int64_t units = 0;    // units of work that threads share: tiles, or blocks of columns where
                             // `split`
  bool split = false;        // threads may share the blocks of one row
  std::int64_t scratch = 0;  // bytes
  std::vector<FusedStep> prologue;          // runs once a call: values of columns, and scalars
  std::vector<std::int64_t> prologue_size;  // number of elements of each
  std::vector<FusedStep> steps;
  std::vector<FusedChainOp> chain_ops;
  std::vector<FusedDraw> draws;
  std::vector<std::int32_t> stages;  // index in `steps` of each stage's first step, and the end
  // Operands whose rows repeat. If one `moves`, its base is the address of the row that the tile's
  // first row reads, and otherwise the operand's address.
  struct Repeat {
    std::int32_t base;
    FusedProgram::Repeat rows;
    std::int64_t pitch;  // bytes
    bool moves;
  };
  std::vector<Repeat> repeats;
  // If not 0, no tile has rows of two groups: a group has so many rows, in so many tiles.
  std::int64_t group_rows = 0, group_tiles = 0;
  std::vector<std::uint64_t> constants;
  // The operations of chain_ops, with addresses, for the steps that are `bound`.
  std::vector<ChainOp> bound_ops;
  bool stores_around = false;
  // The full operands that are read from memory. prefetch_bytes: how many bytes of the next tile
  // each step prefetches.
  struct Prefetch {
    std::int32_t base;
    std::int32_t itemsize;
  };
  std::vector<Prefetch> prefetch;
  std::int64_t prefetch_bytes = 0;
  // For each result, the operands (bit i: operand i) whose memory it may have.
  std::vector<std::uint32_t> overwrites;
};

// Results of the full size are written past the caches if they have `around_bytes` or more.
// by_rows: tiles are a power of two of whole rows, or parts of one row, even for programs whose
// results do not depend on the cut into rows.
FusedStepList make_fused_steps(const FusedProgram& program,
                               std::int64_t around_bytes = store_around_bytes(),
                               bool by_rows = false);

// Runs the units of work [begin, end). A result may use the memory of an operand if list.overwrites
// says so; two results may not use that of the same operand.
void run_fused_steps(const FusedStepList& list, std::span<const void* const> operands,
                     std::span<void* const> results, std::int64_t begin, std::int64_t end);

}  // namespace shmap::cpu
