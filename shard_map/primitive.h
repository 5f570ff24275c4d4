// shard_map as an equation: the program of its body, and the shardings of its operands and results.
#pragma once
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

struct ShardMapParams : ParamsOf<ShardMapParams> {
  const detail::MeshImpl* over = nullptr;  // the mesh, which may be abstract
  std::vector<const Sharding*> in, out;    // one per operand, one per result
  ShardMapOptions options;
  JaxprRef jaxpr;                  // the body, on one device's blocks
  std::vector<std::string> names;  // of the operands, for error messages; or empty
  MappedLines lines;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return over; }
};

// The type of each device's block of a global array, which varies over the axes that the sharding
// mentions. ValueError naming `what` where the array does not fit the sharding.
ShapedArray block_type(const ShapedArray& global, const Sharding* sharding, const char* what);
// A value of an eager body as the global array that consists of its blocks.
Array leave_body(Array block, const Sharding* sharding);

}  // namespace shmap
