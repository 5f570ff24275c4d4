// The stages of a fused program on a GPU: in which loop over a row's elements each value is
// computed, and what one loop leaves for the next.
//
// Loop l computes full values from those of the loops before it and from the rows' values that are
// known before it, and ends with reductions, whose results are known before loop l + 1.
#pragma once
#include <cstdint>
#include <vector>

#include "core/runtime/fused_program.h"

namespace shmap::cuda {

struct FusedLoop {
  std::vector<int> inputs;      // operands of columns and full ones that it loads
  std::vector<int> packs;       // full operands and those of columns that it reads, kept or loaded
  std::vector<int> kept;        // results of earlier loops that it reads
  std::vector<int> ops;         // maps that it computes, in order
  std::vector<int> reductions;  // of its elements
  std::vector<int> stores;      // full outputs, by number
};

// Values are those of the program, numbered as there; broadcasts stand for their operands, and
// where there is one row its columns are full. What no output needs is left out.
class FusedStages {
 public:
  explicit FusedStages(const FusedProgram& program);

  int root(int v) const { return values_[static_cast<std::size_t>(v)].root; }
  FusedKind kind(int v) const { return values_[static_cast<std::size_t>(v)].kind; }
  const std::vector<int>& used() const { return used_; }  // roots, in order
  bool is_reduction(int v) const;
  bool has_reductions() const;
  // Bytes of what the first sum or product of floats is made of; 0: there is none, and no order of
  // elements matters.
  int summed_bytes() const;
  // A row's value: before which loop it is known.
  int known(int v) const { return values_[static_cast<std::size_t>(v)].known; }
  int loops() const { return loops_; }
  bool is_draw(int v) const;
  // Of an element: its maps, and what draws come to in maps.
  std::int64_t ops() const;
  // Registers of 4 bytes an element that hold what loops leave for later ones, where all is kept.
  std::int64_t kept_words() const { return kept_words_; }

  // What each loop does; `keeps`: a value is computed once and kept for later loops, else again by
  // every loop that needs it, and outputs are written by the last one.
  void plan(bool keeps);
  const FusedLoop& loop(int l) const { return plan_[static_cast<std::size_t>(l)]; }
  bool is_kept(int v) const { return values_[static_cast<std::size_t>(v)].kept; }

 private:
  struct Value {
    int root;
    FusedKind kind;
    bool used = false;
    int known = 0;  // full: the loop that computes it first; row: before which loop it is known
    int first = -1, last = -1;  // loops that compute or load it and that read it, as planned
    bool kept = false;
  };
  Value& at(int v) { return values_[static_cast<std::size_t>(v)]; }
  const Value& at(int v) const { return values_[static_cast<std::size_t>(v)]; }
  const FusedProgram::Op& op(int v) const {
    return p_.ops()[static_cast<std::size_t>(p_.index(v))];
  }
  void mark_used(int v);
  void find_loops();
  int loop_of_output(std::size_t o) const;
  bool repeats(int v) const;
  void need(int v, int loop, std::vector<bool>& seen);
  void count_words();

  const FusedProgram& p_;
  std::vector<Value> values_;
  std::vector<int> used_;
  std::vector<FusedLoop> plan_;
  int loops_ = 0;
  bool keeps_ = true;
  std::int64_t kept_words_ = 0;
};

}  // namespace shmap::cuda
