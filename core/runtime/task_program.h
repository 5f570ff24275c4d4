// TaskProgram: a program of blocks that one task runs on one device, from its first step to its
// last. It makes small steps cheap, as in the trips of most loops: a step is not queued, not looked
// up, and allocates nothing.
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
  // The device and the step for which the program runs, and, if the program is_shared(), the part
  // of the program that this call runs.
  struct Caller {
    const detail::MeshImpl* mesh;
    std::uint32_t position;
    std::uint64_t number;  // the step's number, as in OpSite
    void* native;
    int part = 0, parts = 1;
  };

  // Null where a step needs more than a kernel: a collective that moves data, an effect, an
  // equation that the host decides. `owned[i]`: -1, or the number of the result that may stay in
  // the memory of binder i; the program may then overwrite that memory.
  static std::shared_ptr<const TaskProgram> make(JaxprRef jaxpr, const detail::MeshImpl& mesh,
                                                 std::vector<int> owned);

  // Reads the operands and writes the results. A result that stays() in a binder's memory is not
  // written elsewhere, and its address in `results` is ignored. No result may share memory with an
  // operand or another result. `scratch` has scratch_bytes() bytes, aligned as buffers are.
  void run(const Caller& caller, std::span<const void* const> operands,
           std::span<void* const> results, std::byte* scratch) const;

  // Whether threads may share a run: there is at most one step, its kernel can be split, and the
  // results need no other memory.
  bool is_shared() const;
  // The best number of parts for a run, at most `workers`.
  int parts(std::span<const void* const> operands, std::span<void* const> results,
            int workers) const;

  const Jaxpr& jaxpr() const { return *jaxpr_; }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  // Whether result o is left in the memory of the binder that `owned` gave it.
  bool stays(std::size_t o) const { return copies_[o].in_place; }
  Cost cost() const { return cost_; }

 private:
  friend class TaskProgramMaker;
  TaskProgram() = default;

  // An address: `offset` bytes into scratch, an operand, a result, the literals, or a part of an
  // operand that a step found.
  struct Address {
    enum Kind : std::uint8_t { scratch, operand, result, literal, found } kind = scratch;
    std::uint32_t index = 0;
    std::int64_t offset = 0;
  };
  struct Step {
    const Eqn* eqn;
    std::size_t in, out;  // the indices of its first operand and result in places_
    std::uint32_t literals = 0;
    std::int64_t scratch = -1;  // the offset of the kernel's scratch, or -1
    // -1, or the index of the part that the step finds instead of running a kernel: the result is a
    // part of operand 0, at a position that the other operands give.
    int found = -1;
  };
  // What remains to be done for a result after the last step.
  struct Copy {
    bool in_place = false;  // the result stays in its binder's memory
    bool written = false;   // a step wrote it
    Address from;
    std::int64_t bytes = 0;
  };

  class Run;

  JaxprRef jaxpr_;
  DeviceKind kind_{};
  std::vector<Step> steps_;
  std::vector<Address> places_;
  std::vector<ShapedArray> types_;  // of the values at places_
  std::vector<std::uint64_t> literals_;
  std::vector<Copy> copies_;
  std::int64_t scratch_bytes_ = 0;
  int parts_found_ = 0;
  Cost cost_;
};

}  // namespace shmap
