// What an array says of itself without reading a value.
#include "shmap/array.h"

#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

namespace {
const StoredNode& placed(const Array& x, const char* what) {
  checked_node(x, what);
  const Node& node = *node_of(primal_of(x));
  if (node.kind == NodeKind::literal) {
    throw TypeError(std::string(what) +
                    ": a host scalar is on no device yet: place it with device_put");
  }
  if (node.kind != NodeKind::stored || node.trace != 0) {
    throw TypeError(std::string(what) + ": a value of type " + to_string(node.type) +
                    " is a device's block or a traced value, and only arrays outside of mapped and "
                    "traced functions "
                    "have a sharding; vma() tells the axes over which it varies");
  }
  return static_cast<const StoredNode&>(node);
}
}  // namespace

Shape Array::shape() const { return checked_node(*this, "shape").type.dims(); }
int Array::ndim() const { return checked_node(*this, "ndim").type.rank(); }
std::int64_t Array::size() const { return checked_node(*this, "size").type.size(); }
DType Array::dtype() const { return checked_node(*this, "dtype").type.dtype(); }
std::int64_t Array::nbytes() const { return checked_node(*this, "nbytes").type.nbytes(); }
ShapedArray Array::type() const { return checked_node(*this, "type").type; }
std::vector<std::string> Array::vma() const { return checked_node(*this, "vma").type.vma(); }

NamedSharding Array::sharding() const {
  const StoredNode& node = placed(*this, "sharding");
  return NamedSharding(Mesh(node.mesh), node.sharding->spec());
}

bool Array::is_fully_addressable() const {
  checked_node(*this, "is_fully_addressable");
  const Node& node = *node_of(primal_of(*this));
  return node.kind != NodeKind::stored ||
         static_cast<const StoredNode&>(node).mesh->fully_addressable();
}

std::vector<Shard> Array::addressable_shards() const {
  const StoredNode& node = placed(*this, "addressable_shards");
  const Shape block = node.sharding->block_shape(node.type.dims(), "addressable_shards");
  std::vector<Shard> shards;
  for (std::uint32_t p = 0; p < node.count; ++p) {
    const Device& device = node.mesh->local(p).device;
    const detail::MeshImpl* one = detail::MeshImpl::single(device);
    StoredNode* data =
        StoredNode::make(ShapedArray(block, node.type.dtype(), false, AxisSet()), one, 1);
    Array handle = Array::of(data);
    data->sharding = one->replicated();
    data->committed = true;
    data->blocks()[0] = node.blocks()[p];
    shards.push_back({device, node.sharding->index(p, node.type.dims()), std::move(handle)});
  }
  return shards;
}

}  // namespace shmap
