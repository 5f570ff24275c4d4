// Random programs that have derivatives nearly everywhere: instructions on f64 values, in the
// library's terms and in those of plain host code, which has neither devices nor transforms. In a
// body the values are blocks; outside of every body they are global arrays, of one block each.
// Instructions may be transforms of smaller programs: jit, vmap, jvp, grad, checkpoint, rules of
// one's own, control flow, and, outside of bodies, shard_map.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "shmap/collectives.h"
#include "tests/support/jet.h"
#include "tests/support/random_choice.h"

namespace shmap::test {

using Values = std::vector<Array>;
using Reals = HostTensor<Jet>;
using RealBlocks = BlocksOf<Jet>;  // of a value: one a device
using RealValues = std::vector<RealBlocks>;

// Makes one value from earlier ones.
struct SmoothInstruction {
  std::string text;
  std::function<Array(const Values&)> mapped;
  std::function<RealBlocks(const RealValues&)> plain;
};

// Instructions on arguments; the result is the value of the last one.
struct SmoothProgram {
  std::vector<SmoothInstruction> steps;
  Known result;
  Array mapped(Values values) const;
  RealBlocks plain(RealValues values) const;
  std::string text() const;  // indented
};

// The infinitesimal of a derivative that plain code is taking, one level above those around it.
class DerivativeLevel {
 public:
  DerivativeLevel();
  ~DerivativeLevel();
  DerivativeLevel(const DerivativeLevel&) = delete;
  DerivativeLevel& operator=(const DerivativeLevel&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Elements of an array of f64, and back.
Reals to_reals(const Array& x);

class RandomSmoothBody : public RandomChoice {
 public:
  using RandomChoice::RandomChoice;

  Array random_array(const Extents& shape);  // f64 in [-1, 1)
  // The shapes of a block and of the whole array that `spec` splits. Extents are often divisible by
  // the axes, so that scatters have something to cut.
  struct Shapes {
    Extents block, whole;
  };
  Shapes random_shapes(const SpecDims& spec);
  // Adds an instruction, where one of fifty tries fits the values known.
  void step();

  // Limits for the programs that may be drawn.
  struct Where {
    int transforms = 0;    // how deep transforms may be nested
    int derivatives = 2;   // how deep derivatives may be nested
    bool reverse = true;   // the program will be transposed: no while_loop
    bool forward = false;  // the program will be differentiated forwards: no custom_vjp
    bool meet = true;      // all devices run the program: collectives are allowed
    bool checked = true;   // the variance of the body is checked
  };
  Where where;
  std::vector<Known> known;  // the arguments, then what each instruction makes
  std::vector<SmoothInstruction> program;

 private:
  struct Tried;
  using OfOne = std::function<Array(const Array&)>;
  using OfAll = std::function<Array(const Values&)>;
  using RealOfOne = std::function<Reals(const Reals&)>;
  using RealOfAll = std::function<RealBlocks(const RealValues&)>;
  // Computes a device's value after a collective from its group's blocks in rank order and its
  // rank.
  using RealOfGroup = std::function<Reals(const RealBlocks&, std::int64_t rank)>;
  // Each function adds an instruction and returns true.
  bool push(std::string text, Known result, OfAll mapped, RealOfAll plain);
  bool push_local(const Tried& t, const std::string& text, Known result, OfOne f, RealOfOne plain);
  bool push_group(const Tried& t, const std::string& text, Known result, const Groups& groups,
                  OfOne mapped, RealOfGroup plain);
  Groups random_groups(std::int64_t ranks);  // none, or two of half the ranks in a random order
  // A program of one to three instructions on such arguments.
  SmoothProgram inner(std::vector<Known> arguments, Where inside);
  unsigned all_axes() const { return (1u << sizes().size()) - 1; }
  // False where the kind does not fit the value.
  bool try_local(const Tried& t, std::size_t kind);
  bool try_collective(const Tried& t, std::size_t kind);
  bool try_control_flow(const Tried& t, std::size_t kind);
  bool try_transform(const Tried& t, std::size_t kind);
  bool try_derivative(const Tried& t, bool reverse);
  bool try_loop(const Tried& t, bool rows);
  bool try_shard_map(const Tried& t);

  Extents of_bodies_;  // the mesh of all shard_maps
};

// The operands of one try: a value, and mesh axes.
struct RandomSmoothBody::Tried {
  std::size_t a;
  Known x;
  std::vector<int> axes;
  unsigned over;  // the mask of the axes
  Axes named;
  std::int64_t all;  // ranks along them
  std::string of;    // " %3"
};

// ---- plain code that several kinds of instructions share
Known with_extent(Known x, std::size_t dim, std::int64_t extent);
Known without_dim(Known x, std::size_t dim);
Reals map_reals(const Reals& x, const std::function<Jet(const Jet&)>& f);
Jet sum_of(const Reals& x);
Jet mean_of(const Reals& x);
Reals reshaped(Reals x, Extents shape);
Reals transposed(const Reals& x);
Reals row_of(const Reals& x, std::size_t dim, std::int64_t k);  // without the dim
Reals stacked(const std::vector<Reals>& rows, std::size_t dim);
// f of each device's blocks.
RealBlocks each_device(const std::function<Reals(std::size_t device)>& f, std::size_t devices);

}  // namespace shmap::test
