// Integer scalars of a program that the host knows before it runs: literals, the places of devices
// in the mesh, and what is computed of these.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

class KnownScalars {
 public:
  // Of the integers and bools of rank 0 of a program that runs on that mesh.
  KnownScalars(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

  // The integer on each local device, or one where it is the same on all; none where the program
  // has to run to know it. Of a literal too.
  std::vector<std::int64_t> find(const Atom& a) const;

 private:
  using Bits = std::vector<std::uint64_t>;  // for each device; one for all

  bool bits_of(const Atom& a, Bits* out) const;
  void visit(const Eqn& e);

  const detail::MeshImpl& mesh_;
  VarMap<Bits> known_;
};

}  // namespace shmap
