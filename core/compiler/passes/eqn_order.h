// The order that a schedule of a program's equations must keep.
#pragma once
#include <vector>

#include "core/compiler/passes/program_index.h"

namespace shmap {

// An equation comes after the equations whose results it reads, and after those that keep_behind()
// names. The caller places equations one by one; an equation is ready when all of these are placed.
class EqnOrder {
 public:
  explicit EqnOrder(const ProgramIndex& program)
      : after_(static_cast<std::size_t>(program.size())), missing_(after_.size(), 0) {
    for (int i = 0; i < program.size(); ++i)
      for (const VarRef& v : program.eqn(i).out)
        for (int user : program.users(v.get())) keep_behind(i, user);
  }

  // `before`: -1 for none.
  void keep_behind(int before, int i) {
    if (before < 0) return;
    after_[static_cast<std::size_t>(before)].push_back(i);
    ++missing_[static_cast<std::size_t>(i)];
  }
  bool is_ready(int i) const { return missing_[static_cast<std::size_t>(i)] == 0; }

  // Calls seen(k, is_ready) for each equation k that waited for equation i.
  template <class Seen>
  void place(int i, Seen seen) {
    for (int k : after_[static_cast<std::size_t>(i)])
      seen(k, --missing_[static_cast<std::size_t>(k)] == 0);
  }

 private:
  std::vector<std::vector<int>> after_;
  std::vector<int> missing_;
};

}  // namespace shmap
