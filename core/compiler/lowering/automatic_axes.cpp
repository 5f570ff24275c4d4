#include "core/compiler/lowering/automatic_axes.h"

#include "core/array/local_devices.h"
#include "core/compiler/lowering/partition.h"
#include "core/compiler/lowering/per_device.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/ir/node.h"
#include "core/runtime/reshard.h"

namespace shmap {

std::uint32_t all_axes(const detail::MeshImpl& mesh) {
  return static_cast<std::uint32_t>((std::uint64_t{1} << mesh.env()->sizes.size()) - 1);
}

const detail::AxisEnv* env_of(const detail::MeshImpl& mesh, std::uint32_t axes) {
  const detail::AxisEnv& all = *mesh.env();
  if (axes == all_axes(mesh)) return &all;
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;
  for (std::size_t a = 0; a < all.sizes.size(); ++a) {
    if (!(axes >> a & 1u)) continue;
    names.push_back(all.names[a]);
    sizes.push_back(all.sizes[a]);
  }
  return detail::AxisEnv::intern(names, sizes);
}

namespace {

const Sharding* sharding_of(const detail::MeshImpl& mesh,
                            const std::vector<std::vector<int>>& dims) {
  std::vector<PartitionSpec::Entry> entries;
  for (const std::vector<int>& axes : dims) {
    std::vector<std::string> names;
    for (const int a : axes) names.push_back(mesh.env()->names[static_cast<std::size_t>(a)]);
    entries.emplace_back(Axes(names));
  }
  return mesh.sharding(PartitionSpec(std::move(entries)));
}

}  // namespace

const Sharding* part_over(const Sharding* sharding, std::uint32_t axes) {
  if ((sharding->mentioned() & ~axes) == 0) return sharding;
  std::vector<std::vector<int>> dims = sharding->dims();
  for (std::vector<int>& dim : dims)
    std::erase_if(dim, [axes](int a) { return !(axes >> a & 1u); });
  return sharding_of(*sharding->mesh(), dims);
}

const Sharding* joined(const Sharding* manual, const Sharding* automatic, const Shape& block) {
  if (automatic->is_replicated()) return manual;
  std::vector<std::vector<int>> dims = manual->dims();
  dims.resize(block.size());
  for (std::size_t d = 0; d < dims.size() && d < automatic->dims().size(); ++d) {
    const std::vector<int>& axes = automatic->dims()[d];
    if (block[d] % automatic->parts(d) == 0)
      dims[d].insert(dims[d].end(), axes.begin(), axes.end());
  }
  return sharding_of(*manual->mesh(), dims);
}

void run_by_rule(const Primitive& primitive, std::span<Array> in, Types in_types,
                 const Params& params, std::span<Array> out, Types out_types,
                 const detail::MeshImpl* mesh, std::uint64_t trace, SourceLine source) {
  std::vector<const Sharding*> given;
  for (const Array& x : in) {
    const StoredNode* node = stored_of(x);
    const bool split = node && node->mesh == mesh && node->sharding;
    given.push_back(!node ? nullptr : split ? node->sharding : mesh->replicated());
  }
  const Partition plan = partition(primitive, in_types, out_types, params, given, mesh);
  want_local_devices(*mesh, primitive.name, source);
  PerDeviceTrace blocks(mesh, {false, false}, source);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Sharding* const wanted = plan.operands[i];
    if (!wanted) continue;
    if (given[i] != wanted || stored_of(in[i])->mesh != mesh) {
      in[i] = reshard_array(in[i], wanted,
                            std::string(primitive.name) + ": operand " + std::to_string(i), source);
    }
    in[i] = relabel(std::move(in[i]), block_type(in_types[i], wanted, primitive.name), nullptr,
                    blocks.id(), true);
  }
  run_partitioned(blocks, primitive, plan, in, params, out, source);
  for (std::size_t o = 0; o < out.size(); ++o) {
    out[o] = relabel(std::move(out[o]), out_types[o], plan.results[o], trace, true);
    node_of(out[o])->origin = {primitive.name, source};
  }
}

Array whole_in_body(const Array& x, SourceLine source) {
  const StoredNode* node = node_of(x) ? stored_of(x) : nullptr;
  if (!node || node->trace == 0 || !node->sharding) return x;
  return reshard_array(x, node->mesh->replicated(), "a value of a body", source);
}

}  // namespace shmap
