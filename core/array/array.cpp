// The methods of Array that need no element values.
#include "shmap/array.h"

#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

namespace {
const StoredNode& placed(const Array& x, const char* what, SourceLine source) {
  checked_node(x, what, source);
  const Node& node = *node_of(primal_of(x));
  if (node.kind == NodeKind::literal) {
    throw TypeError(std::string(what) +
                    ": a host scalar is on no device yet: place it with device_put" +
                    at_line(source));
  }
  if (node.kind != NodeKind::stored || node.trace != 0) {
    throw TypeError(std::string(what) + ": an array of type " + to_string(node.type) +
                    (node.kind == NodeKind::stored ? " is a device's block in a shard_map body"
                                                   : " is a traced value without a place") +
                    ", and only arrays outside of mapped and traced functions have a sharding. Ask "
                    "for it outside of the function; in a body, vma() gives the mesh axes over "
                    "which a value varies" +
                    origin_text(node) + scope_text() + at_line(source));
  }
  return static_cast<const StoredNode&>(node);
}
}  // namespace

Shape Array::shape(SourceLine source) const {
  return checked_node(*this, "shape", source).type.dims();
}
int Array::ndim(SourceLine source) const { return checked_node(*this, "ndim", source).type.rank(); }
std::int64_t Array::size(SourceLine source) const {
  return checked_node(*this, "size", source).type.size();
}
DType Array::dtype(SourceLine source) const {
  return checked_node(*this, "dtype", source).type.dtype();
}
std::int64_t Array::nbytes(SourceLine source) const {
  return checked_node(*this, "nbytes", source).type.nbytes();
}
ShapedArray Array::type(SourceLine source) const {
  return checked_node(*this, "type", source).type;
}
std::vector<std::string> Array::vma(SourceLine source) const {
  return checked_node(*this, "vma", source).type.vma();
}

NamedSharding Array::sharding(SourceLine source) const {
  const StoredNode& node = placed(*this, "sharding", source);
  return NamedSharding(Mesh(node.mesh), node.sharding->spec());
}

bool Array::is_fully_addressable(SourceLine source) const {
  checked_node(*this, "is_fully_addressable", source);
  const Node& node = *node_of(primal_of(*this));
  return node.kind != NodeKind::stored ||
         static_cast<const StoredNode&>(node).mesh->fully_addressable();
}

std::vector<Shard> Array::addressable_shards(SourceLine source) const {
  const StoredNode& node = placed(*this, "addressable_shards", source);
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
