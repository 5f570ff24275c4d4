// shard_map as an equation: the program of its body, and the shardings of its operands and results.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"
#include "shmap/shard_map.h"

namespace shmap {

extern Primitive shard_map_p;

// The lines where a mapped function was made and where it was called, as far as these are known.
struct MappedLines {
  SourceLine made, called;
  SourceLine site() const { return called.file ? called : made; }
  std::string text() const;  // both lines, as the last lines of a message
};

// The mesh axes of a mapped function, as masks over the axes of its mesh.
struct MappedAxes {
  std::uint32_t own = 0;    // those that the function is mapped over, which its specs may name
  std::uint32_t outer = 0;  // those of the mapped functions around it
  // The body writes the collectives of these axes. The others are automatic
  // (core/compiler/lowering/automatic_axes.h).
  std::uint32_t manual() const { return own | outer; }
};

struct ShardMapParams : ParamsOf<ShardMapParams> {
  const detail::MeshImpl* over = nullptr;  // the mesh, which may be abstract
  MappedAxes axes;
  std::vector<const Sharding*> in, out;  // one per operand, one per result
  ShardMapOptions options;
  JaxprRef jaxpr;                  // the body, on one device's blocks
  std::vector<std::string> names;  // of the operands, for error messages; or empty
  MappedLines lines;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return over; }
};

}  // namespace shmap
