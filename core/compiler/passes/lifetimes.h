// When the values of a program of blocks get memory, and when it is free again.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/compiler/passes/program_index.h"

namespace shmap {

// Whether the equation's result shares its operand's memory.
bool is_view(const Eqn& e);

// A value's memory is allocated by its equation and freed after its last use; the memory of the
// program's results is never freed. A view shares its operand's memory, and an elementwise result
// may take over an operand's memory at the operand's last use. Scratch memory of kernels does not
// count.
class Lifetimes {
 public:
  static constexpr int kArgument = -1;                               // Held::born of arguments
  static constexpr int kToTheEnd = std::numeric_limits<int>::max();  // Held::last of results

  // The memory of a value and of its views. Times are numbers of equations.
  struct Held {
    std::int64_t bytes = 0;
    int born = kArgument;
    int last = kArgument;
    bool is_owned() const { return born != kArgument; }  // the program allocates it
  };

  // `program` must outlive this object. kind: the kind of devices, whose kernels say which operands
  // they overwrite. bytes(v): the size of value v.
  template <class BytesOf>
  Lifetimes(const ProgramIndex& program, DeviceKind kind, BytesOf bytes)
      : program_(program), kind_(kind), held_of_(std::size_t(program.value_count()), -1) {
    for (const VarRef& v : program.jaxpr().binders)
      if (program.number(v.get()) >= 0) add(v.get(), {bytes(v.get())});
    for (int i = 0; i < program.size(); ++i) {
      const Eqn& e = program.eqn(i);
      for (std::size_t o = 0; o < e.out.size(); ++o) {
        const Var* v = e.out[o].get();
        if (o == 0 && is_view(e)) {
          held_of(v) = held_of(e.in[0].var());
          continue;
        }
        add(v, {bytes(v), i, i});
      }
    }
    find_deaths();
  }

  const std::vector<Held>& all() const { return held_; }
  int number(const Var* v) const {  // the value's index in all()
    return held_of_[static_cast<std::size_t>(program_.number(v))];
  }
  const Held& of(const Var* v) const { return held_[static_cast<std::size_t>(number(v))]; }

  // The bytes that the program has allocated while each equation runs, without arguments.
  // inside(e): the most bytes of the programs inside of e, besides e's own results.
  template <class Inside>
  std::vector<std::int64_t> needs(Inside inside) const {
    std::vector<std::int64_t> needs;
    std::int64_t live = 0;
    for (int i = 0; i < program_.size(); ++i) {
      const StepBytes& step = steps_[static_cast<std::size_t>(i)];
      const std::int64_t others = inside(program_.eqn(i));
      // A branch's results are those of the equation; a loop holds its own results and those of a
      // trip.
      const bool shares = program_.eqn(i).primitive->programs.one_runs();
      const std::int64_t held = shares ? std::max(step.made, others) : step.made + others;
      needs.push_back(live + held - step.taken_over);
      live += step.made - step.dying;
    }
    return needs;
  }

 private:
  struct StepBytes {
    std::int64_t made = 0;        // by results, including those that overwrite an operand
    std::int64_t taken_over = 0;  // bytes of operands that results overwrite
    std::int64_t dying = 0;       // bytes that are free after the equation
  };

  int& held_of(const Var* v) { return held_of_[static_cast<std::size_t>(program_.number(v))]; }
  void add(const Var* v, const Held& held) {
    held_of(v) = static_cast<int>(held_.size());
    held_.push_back(held);
  }
  void find_deaths();
  std::int64_t find_taken_over(int i) const;

  const ProgramIndex& program_;
  DeviceKind kind_;
  std::vector<int> held_of_;  // by number of the value
  std::vector<Held> held_;
  std::vector<StepBytes> steps_;
};

}  // namespace shmap
