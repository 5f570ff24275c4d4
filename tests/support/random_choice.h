// Choices of the generators of random programs for shard_map: a mesh, specs and axes from a seed.
// The same seed makes the same choices on every machine.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "shmap/mesh.h"
#include "shmap/partition_spec.h"
#include "tests/support/loop_reference.h"

namespace shmap::test {

// The properties of a value that a generator knows: enough to choose legal instructions, and the
// variance by the typing rules.
struct Known {
  Extents shape;
  unsigned varying;  // mask of axes
};

class RandomChoice {
 public:
  // Takes one of `meshes`, whose axes are "i" and, of two, "j"; in several processes one that has a
  // device of each.
  RandomChoice(unsigned seed, const std::vector<Extents>& meshes);

  std::size_t pick(std::size_t n);  // 0 to n - 1
  bool coin() { return pick(2) == 0; }
  double number();  // in [-1, 1)

  const Extents& sizes() const { return sizes_; }
  Mesh mesh() const;
  // Any assignment of some of the axes to dims, in any order; of those in the mask `required`, all.
  SpecDims random_spec(std::size_t rank, unsigned required);
  std::vector<int> random_axes();    // one at least, in any order
  std::vector<int> shuffled(int n);  // 0 to n - 1
  std::int64_t ranks(const std::vector<int>& axes) const;
  // The meshes that have a device in each process; in one process, all of them.
  static std::vector<Extents> in_all_processes(const std::vector<Extents>& meshes);
  static unsigned mask(const std::vector<int>& axes);
  static unsigned mask(const SpecDims& spec);  // of the axes that split some dim
  static Axes names(const std::vector<int>& axes);
  static PartitionSpec to_spec(const SpecDims& dims);

  // There are no axes if sizes() is empty: for code outside of every body.
  HostMesh host_mesh() const { return {sizes_}; }
  void set_sizes(Extents sizes) { sizes_ = std::move(sizes); }

 private:
  std::mt19937 engine_;
  Extents sizes_;
};

// run(number) for each number below `count` (SHMAP_TEST_PROGRAMS, if that is set) until one fails,
// or for that of SHMAP_TEST_CASE alone.
void run_cases(unsigned count, void (*run)(unsigned number));

}  // namespace shmap::test
