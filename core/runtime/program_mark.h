// ProgramMark: lets processes detect that the programs that they run together differ.
//
// Each collective that leaves the process sends the mark of the plan that runs it in its message. A
// program that was traced differently in one process is therefore detected at its first collective,
// before other processes' data is used, and without additional messages.
#pragma once
#include <cstdint>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// All zero outside of plans.
struct ProgramMark {
  std::uint64_t program = 0;    // a hash of the program's text: its equations, types and literals
  std::uint64_t constants = 0;  // a hash of the values that it captured and that are equal on all
                                // devices
  std::uint32_t equations = 0;
  friend bool operator==(const ProgramMark&, const ProgramMark&) = default;
};

// The mark of a program that captures nothing; zeros on a mesh of one process. (compare_program, in
// same_values.h, makes the mark of a program that captures values.)
ProgramMark make_program_mark(const detail::MeshImpl& mesh, const Jaxpr& jaxpr);

// The mark of the plan that this thread runs.
ProgramMark current_program() noexcept;

// Makes `mark` the mark of the plan that this thread runs, while the object lives.
class ProgramScope {
 public:
  explicit ProgramScope(const ProgramMark& mark) noexcept;
  ~ProgramScope();
  ProgramScope(const ProgramScope&) = delete;
  ProgramScope& operator=(const ProgramScope&) = delete;

 private:
  const ProgramMark outer_;
};

}  // namespace shmap
