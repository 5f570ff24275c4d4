// TaskProgram: a program of blocks that one task runs, from its first step to its last, on one
// device. Where steps are small, as in the trips of most loops, that is what makes them cheap: no
// step is queued, allocates, or is looked up again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

class TaskProgram {
 public:
  // Where and for whom it runs.
  struct Site {
    const detail::MeshImpl* mesh;
    std::uint32_t position;
    std::uint64_t number;  // of the step, as OpSite's
    void* native;
  };

  // Null where a step of the program needs more than a kernel: a collective that moves data, an
  // effect, an equation that the host decides. `owned[i]`: -1, or the result that may be left in
  // binder i's memory, which the program may then overwrite.
  static std::shared_ptr<const TaskProgram> make(JaxprRef jaxpr, const detail::MeshImpl& mesh,
                                                 std::vector<int> owned);

  // Reads the operands and writes the results but those that stay_in a binder's memory, whose
  // address in `results` is not looked at. No result may share memory with an operand or another
  // result. `scratch` has scratch_bytes(), aligned as buffers are.
  void run(const Site& site, std::span<const void* const> operands, std::span<void* const> results,
           std::byte* scratch) const;

  const Jaxpr& jaxpr() const { return *jaxpr_; }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  // Whether result o is found in the memory of the binder that it was allowed.
  bool stays(std::size_t o) const { return copies_[o].in_place; }
  Cost cost() const { return cost_; }

 private:
  friend class TaskProgramMaker;
  TaskProgram() = default;

  // An address: `offset` bytes into scratch, an operand, a result, or a literal.
  struct Place {
    enum Kind : std::uint8_t { scratch, operand, result, literal } kind = scratch;
    std::uint32_t index = 0;
    std::int64_t offset = 0;
  };
  struct Step {
    const Eqn* eqn;
    std::size_t in, out;  // their first places; as many as eqn has
    std::uint32_t literals = 0;
    std::int64_t scratch = -1;  // where the kernel's own lies, or -1
  };
  // What is left to do for a result after the steps.
  struct Copy {
    bool in_place = false;  // it stays where its binder is
    bool written = false;   // a step wrote it
    Place from;
    std::int64_t bytes = 0;
  };

  JaxprRef jaxpr_;
  DeviceKind kind_{};
  std::vector<Step> steps_;
  std::vector<Place> places_;
  std::vector<ShapedArray> types_;  // of the places
  std::vector<std::uint64_t> literals_;
  std::vector<Copy> copies_;
  std::int64_t scratch_bytes_ = 0;
  Cost cost_;
};

}  // namespace shmap
