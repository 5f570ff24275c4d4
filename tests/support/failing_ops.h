// Operations for random programs of arrays that fail, each with what it gives in plain host code:
// the numbers, and the errors with which it may fail.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "shmap/mesh.h"

namespace shmap::test {

// What is known of an array of i32.
struct Outcome {
  std::vector<std::int32_t> numbers;  // where it is computed
  bool computed = true;               // false: it fails for certain
  std::set<std::string> errors;       // what the text of a failure has in it, one of these
  bool in_part = false;               // a failure may concern some of its blocks only

  bool good() const { return errors.empty(); }
};

// The outcome of an operation that reads all of `whole`, and of `parts` perhaps not every block.
Outcome outcome_of(std::vector<std::int32_t> numbers, const std::vector<const Outcome*>& whole,
                   const std::vector<const Outcome*>& parts = {});

// Operands are arrays of one dim and one extent, a multiple of 64, and after them keys, arrays of
// shape {1}.
struct FailingOp {
  std::string name;
  std::size_t arrays = 1, keys = 0;
  bool makes_key = false;
  bool waits = false;  // an eager call, and a plan with it, may wait for an operand
  std::function<Array(std::vector<Array>)> ours;
  std::function<Outcome(const std::vector<Outcome>&)> plain;
  bool several_meshes = false;  // places a value on another mesh
  int tasks = 60;               // about the most that an eager call enqueues
};

// Eight devices, as {4, 2}.
const Mesh& failing_mesh();
// Operations of which none fails by itself or, with `own_failures`, some do: kernels that throw for
// certain keys, on all devices or on some. Those need devices of the CPU.
std::vector<FailingOp> failing_ops(bool own_failures);

}  // namespace shmap::test
