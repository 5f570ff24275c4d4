// Batching a mapped function: the body runs once, under a BatchTrace, on blocks with a batch
// dimension. The batch dimension is not split over the mesh: the specs get an additional dim that
// names no axis.
#include "core/transforms/vmap/batch.h"
#include "shard_map/mapped.h"
#include "shard_map/primitive.h"

namespace shmap {

namespace {

// The sharding of an array with an additional dim `dim`, which is not split.
const Sharding* with_whole_dim(const Sharding* sharding, int dim) {
  if (dim < 0) return sharding;
  std::vector<PartitionSpec::Entry> entries = sharding->spec().entries();
  const auto at = static_cast<std::size_t>(dim);
  if (at < entries.size()) entries.insert(entries.begin() + dim, PartitionSpec::Entry(none));
  return sharding->mesh()->sharding(PartitionSpec(std::move(entries)));
}

// The type without dim `dim`.
ShapedArray element_of(const ShapedArray& batched, int dim) {
  Shape shape;
  for (int d = 0; d < batched.rank(); ++d)
    if (d != dim) shape.push_back(batched.dims()[static_cast<std::size_t>(d)]);
  return ShapedArray(shape, batched.dtype(), batched.weak(), batched.axes());
}

}  // namespace

Batch batch_mapped(MappedCall call, std::span<const int> dims, std::int64_t size, Trace& parent,
                   std::uint64_t tag) {
  Batch out;
  MappedCall batched = call;
  for (std::size_t i = 0; i < dims.size(); ++i)
    batched.in_shardings[i] = with_whole_dim(call.in_shardings[i], dims[i]);
  batched.body = [&](std::vector<Array> blocks) {
    BatchTrace trace(current_trace(), size, tag);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      blocks[i] = trace.wrap(std::move(blocks[i]), dims[i]);
    std::vector<Array> results;
    {
      TraceScope scope(trace);
      results = call.body(std::move(blocks));
    }
    for (Array& x : results) {
      auto [values, dim] = trace.split(x);
      x = std::move(values);
      out.dims.push_back(dim);
    }
    return results;
  };
  batched.out_shardings = [&](std::span<const ShapedArray> types) {
    std::vector<ShapedArray> elements;
    for (std::size_t o = 0; o < types.size(); ++o)
      elements.push_back(out.dims[o] < 0 ? types[o] : element_of(types[o], out.dims[o]));
    std::vector<const Sharding*> shardings = call.out_shardings(elements);
    for (std::size_t o = 0; o < types.size(); ++o)
      shardings[o] = with_whole_dim(shardings[o], out.dims[o]);
    return shardings;
  };
  TraceScope scope(parent);
  out.values = map_over(std::move(batched));
  return out;
}

}  // namespace shmap
