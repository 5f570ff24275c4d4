// The stages of a fused program on a GPU: the loop over a row's elements in which each value is
// computed, and the values that one loop keeps for the next.
//
// Loop l computes full values from full values of earlier loops and from values of rows that are
// known before it. It ends with reductions, whose results are known before loop l + 1.
#pragma once
#include <cstdint>
#include <vector>

#include "core/runtime/fused_program.h"

namespace shmap::cuda {

struct FusedLoop {
  std::vector<int> inputs;      // operands of columns and full operands that the loop loads
  std::vector<int> packs;       // full and column operands that the loop reads, kept or loaded
  std::vector<int> kept;        // results of earlier loops that the loop reads
  std::vector<int> ops;         // maps that the loop computes, in order
  std::vector<int> reductions;  // reductions of the loop's elements
  std::vector<int> stores;      // full outputs, by number
};

// Values are numbered as in the program. A broadcast stands for its operand, and in a program of
// one row values of columns are full. Values that no output needs are left out.
class FusedStages {
 public:
  explicit FusedStages(const FusedProgram& program);

  int root(int v) const { return values_[static_cast<std::size_t>(v)].root; }
  FusedKind kind(int v) const { return values_[static_cast<std::size_t>(v)].kind; }
  const std::vector<int>& used() const { return used_; }  // roots, in order
  bool is_reduction(int v) const;
  bool has_reductions() const;
  // The element size in bytes of the first sum or product of floats; 0: there is none, so that the
  // order of elements does not matter.
  int summed_bytes() const;
  // The loop before which a value of rows is known.
  int known(int v) const { return values_[static_cast<std::size_t>(v)].known; }
  int loops() const { return loops_; }
  bool is_draw(int v) const;
  // The number of maps for one element; a draw counts as several maps.
  std::int64_t ops() const;
  // The number of 4-byte registers that values kept for later loops take for each element, if all
  // are kept.
  std::int64_t kept_words() const { return kept_words_; }

  // For each result, the operands (bit i: operand i) whose memory the result may have in every plan
  // of the loops: operands with the same elements that are read no later than the result is
  // written. A thread reads the elements that it writes, and no others.
  const std::vector<std::uint32_t>& overwrites() const { return overwrites_; }

  // Assigns work to the loops. `keeps`: a value is computed once and kept for later loops, and the
  // last loop writes the outputs; else every loop that needs a value computes it again.
  void plan(bool keeps);
  const FusedLoop& loop(int l) const { return plan_[static_cast<std::size_t>(l)]; }
  bool is_kept(int v) const { return values_[static_cast<std::size_t>(v)].kept; }

 private:
  struct Value {
    int root;
    FusedKind kind;
    bool used = false;
    int known = 0;  // full: the loop that computes it first; row: before which loop it is known
    int first = -1, last = -1;  // the first loop that computes or loads it, and the last that reads
                                // it, as planned
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
  void find_overwrites();

  const FusedProgram& p_;
  std::vector<Value> values_;
  std::vector<int> used_;
  std::vector<FusedLoop> plan_;
  int loops_ = 0;
  bool keeps_ = true;
  std::int64_t kept_words_ = 0;
  std::vector<std::uint32_t> overwrites_;
};

}  // namespace shmap::cuda
