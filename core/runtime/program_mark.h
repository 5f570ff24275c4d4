// ProgramMark: by what processes find out that the programs that they run together are not the
// same.
//
// Each collective that leaves the process takes the mark of the plan that runs it along, in its
// message. So a program that was traced otherwise in one process is found at its first collective,
// before anything is computed with the other's data, and without a message of its own.
#pragma once
#include <cstdint>
#include <span>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Zeros outside of plans.
struct ProgramMark {
  std::uint64_t program = 0;    // a hash of the program's text: its equations, types and literals
  std::uint64_t constants = 0;  // and of the values that it captured, and that all devices have
  std::uint32_t equations = 0;
  friend bool operator==(const ProgramMark&, const ProgramMark&) = default;
};

// Of a program on a mesh of several processes; else zeros. consts: the values of its first binders,
// stored on the mesh: those on CPU devices of up to 64 KB, which do not vary over the mesh, are
// waited for and read.
ProgramMark make_program_mark(const detail::MeshImpl& mesh, const Jaxpr& jaxpr,
                              std::span<const Array> consts);

// Of the plan that this thread runs.
ProgramMark current_program() noexcept;

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
