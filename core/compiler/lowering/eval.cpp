#include "core/compiler/lowering/eval.h"

#include "core/array/sharding.h"
#include "core/base/inline_vector.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/runtime/repeatable_call.h"
#include "core/runtime/reshard.h"
#include "core/runtime/step.h"

namespace shmap {

void register_base_trace() {
  // Never destroyed: arrays may be used until the process ends.
  static auto* const trace = new EvalTrace();
  set_base_trace(*trace);
}

namespace {

// The mesh on which an operation runs: the mesh that its committed operands share; otherwise the
// device of its other operands; otherwise the default device.
const detail::MeshImpl* find_mesh(const Primitive& primitive, std::span<Array> in, bool* committed,
                                  SourceLine source) {
  const detail::MeshImpl* mesh = nullptr;
  std::size_t placed = 0;  // the operand that decided the mesh
  *committed = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Node& node = checked_node(in[i], primitive.name, source);
    if (node.kind == NodeKind::literal) continue;
    if (node.trace != 0 || node.kind != NodeKind::stored)
      throw_escaped(node, primitive.name, source);
    const auto& stored = static_cast<const StoredNode&>(node);
    if (stored.committed) {
      if (*committed && mesh != stored.mesh) {
        throw ValueError(std::string(primitive.name) +
                         ": the operands are placed on two meshes: operand " +
                         std::to_string(placed) + " on " + describe_mesh(*mesh) + ", and operand " +
                         std::to_string(i) + " on " + describe_mesh(*stored.mesh) + " (" +
                         mesh_difference(*mesh, *stored.mesh) +
                         "). Bring one of them to the other's mesh with device_put(x, "
                         "NamedSharding(mesh, spec))" +
                         at_line(source));
      }
      if (!*committed) placed = i;
      mesh = stored.mesh;
      *committed = true;
    } else if (!mesh) {
      mesh = stored.mesh;
    }
  }
  return mesh ? mesh : detail::MeshImpl::default_device();
}

void process_single(const Primitive& primitive, std::span<Array> in, Types in_types,
                    const Params& params, std::span<Array> out, Types out_types,
                    const detail::MeshImpl* mesh, bool committed, SourceLine source) {
  for (Array& x : in) {
    const StoredNode* node = stored_of(x);
    if (node && node->mesh != mesh) x = reshard(x, mesh->replicated(), primitive.name, source);
  }
  InlineVector<StoredNode*, 2> results(out.size());
  for (std::size_t o = 0; o < out.size(); ++o) {
    StoredNode* node = StoredNode::make(out_types[o], mesh, mesh->local_count());
    node->sharding = mesh->replicated();
    node->committed = committed;
    node->origin = {primitive.name, source};
    out[o] = Array::first(node);
    results[o] = node;
  }
  run_step({primitive, params, *mesh, in, in_types, 0, source}, out_types, results.span());
}

}  // namespace

void EvalTrace::process(const Primitive& primitive, std::span<Array> in, const Params& params,
                        std::span<Array> out, SourceLine source) {
  if (primitive.interpret)
    return run_repeatable([&] { primitive.interpret(in, params, out, source); });
  bool committed = false;
  const detail::MeshImpl* mesh = find_mesh(primitive, in, &committed, source);
  InlineVector<ShapedArray, 4> in_types(in.size());
  InlineVector<ShapedArray, 2> out_types(out.size());
  for (std::size_t i = 0; i < in.size(); ++i) in_types[i] = node_of(in[i])->type;
  try {
    infer_types(primitive, in_types, params, nullptr, out_types);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line(source));
  }
  if (primitive.group) {
    throw CollectiveError(
        std::string(primitive.name) +
        " was called outside of every shard_map body: unbound axis name; collectives work on the "
        "blocks of a mapped function" +
        at_line(source));
  }
  if (mesh->is_single()) {
    process_single(primitive, in, in_types.span(), params, out, out_types.span(), mesh, committed,
                   source);
  } else {
    run_repeatable([&] {
      run_by_rule(primitive, in, in_types.span(), params, out, out_types.span(), mesh, 0, source);
    });
  }
}

}  // namespace shmap
