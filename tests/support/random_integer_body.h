// Random bodies for shard_map on i32 blocks: instructions in the library's terms, and in host
// terms.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "tests/support/random_choice.h"

namespace shmap::test {

// Makes one value from earlier ones.
struct IntegerInstruction {
  std::string text;
  std::function<Array(const std::vector<Array>&)> ours;
  std::function<Blocks(const std::vector<Blocks>&)> reference;
};

class RandomIntegerBody : public RandomChoice {
 public:
  using RandomChoice::RandomChoice;

  // A shape that `spec` splits evenly.
  Extents random_shape_for(const SpecDims& spec);
  // Adds an instruction, where one of fifty tries fits the values known.
  void step();

  std::vector<Known> known;  // the arguments, then what each instruction makes
  std::vector<IntegerInstruction> program;

 private:
  struct Tried;
  // Each function adds an instruction and returns true.
  bool push(std::string text, Known result, std::function<Array(const std::vector<Array>&)> ours,
            std::function<Blocks(const std::vector<Blocks>&)> reference);
  bool push_local(const Tried& t, const std::string& text, Known result,
                  std::function<Array(const Array&)> ours,
                  std::function<HostArray(const HostArray&)> reference);
  bool push_group(
      const Tried& t, const std::string& text, Known result,
      std::function<Array(const Array&)> ours,
      std::function<HostArray(const std::vector<HostArray>&, std::int64_t rank)> reference);
  // False where the kind does not fit the value.
  bool try_local(const Tried& t, std::size_t kind);
  bool try_collective(const Tried& t, std::size_t kind);
};

}  // namespace shmap::test
