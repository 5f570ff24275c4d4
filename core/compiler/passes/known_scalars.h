// Integer scalars whose values the host knows before a program runs: literals, positions of devices
// in the mesh, and results computed from these.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

class KnownScalars {
 public:
  // For integers and bools of rank 0, in a program that runs on that mesh.
  KnownScalars(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

  // The integer on each local device, or one entry where it is the same on all; empty where it is
  // known only when the program runs. `a` may be a literal.
  std::vector<std::int64_t> find(const Atom& a) const;

  // The offset, in elements, of the first element of a part of an array: an entry for each local
  // device, or one for all; empty where one of the starts is not known. `starts`: the part's start
  // in each dim, which dynamic_slice clamps.
  std::vector<std::int64_t> offsets_of_part(const Shape& whole, const Shape& part,
                                            std::span<const Atom> starts) const;

 private:
  using Bits = std::vector<std::uint64_t>;  // an entry for each device, or one for all

  bool bits_of(const Atom& a, Bits* out) const;
  void visit(const Eqn& e);

  const detail::MeshImpl& mesh_;
  VarMap<Bits> known_;
};

}  // namespace shmap
