// Random bodies for shard_map that have derivatives nearly everywhere: instructions on f64 blocks,
// and what they do without a mesh.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "shmap/collectives.h"
#include "tests/support/random_choice.h"

namespace shmap::test {

using Values = std::vector<Array>;

// Makes one value from earlier ones. `plain` does without a mesh what `mapped` does on one device.
struct SmoothInstruction {
  std::string text;
  std::function<Array(const Values&)> mapped, plain;
};

class RandomSmoothBody : public RandomChoice {
 public:
  using RandomChoice::RandomChoice;

  Array random_array(const Extents& shape);  // f64 in [-1, 1)
  // Adds an instruction, where one of fifty tries fits the values known.
  void step();

  std::vector<Known> known;  // the arguments, then what each instruction makes
  std::vector<SmoothInstruction> program;

 private:
  struct Tried;
  using OfOne = std::function<Array(const Array&)>;
  using OfAll = std::function<Array(const Values&)>;
  // Each adds an instruction, and is true.
  bool push(std::string text, Known result, OfAll mapped, OfAll plain);
  bool push_local(const Tried& t, const std::string& text, Known result, OfOne f);
  bool push_group(const Tried& t, const std::string& text, Known result, OfOne mapped, OfOne plain);
  Groups random_groups(std::int64_t ranks);  // none, or two of half the ranks in a random order
  // False where the kind does not fit the value.
  bool try_local(const Tried& t, std::size_t kind);
  bool try_collective(const Tried& t, std::size_t kind);
  bool try_control_flow(const Tried& t, std::size_t kind);
};

}  // namespace shmap::test
