// shard_map as an equation: a body inside, with how each operand is split and how each result is
// put together.
#pragma once
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"
#include "shmap/shard_map.h"

namespace shmap {

extern Primitive shard_map_p;

// Where a mapped function was made, and where it was called, where that is known.
struct MappedLines {
  SourceLine made, called;
  SourceLine site() const { return called.file ? called : made; }
  std::string text() const;  // both, as the last lines of a message
};

struct ShardMapParams : ParamsOf<ShardMapParams> {
  const detail::MeshImpl* over = nullptr;  // the mesh; abstract ones too
  std::vector<const Sharding*> in, out;    // one for each operand and result
  ShardMapOptions options;
  JaxprRef jaxpr;                  // of one device's blocks
  std::vector<std::string> names;  // of the operands, for errors; or none
  MappedLines lines;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return over; }
};

// A global type as that of each device's block, which varies over what the sharding mentions.
// ValueError naming `what` where it does not fit.
ShapedArray block_type(const ShapedArray& global, const Sharding* sharding, const char* what);
// A value of an eager body as the global array that its blocks are put together to.
Array leave_body(const Array& block, const Sharding* sharding);

}  // namespace shmap
