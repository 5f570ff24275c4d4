// The parameters of a shard_map, by name, for programs built by hand or read from a text.
#include "core/compiler/lowering/automatic_axes.h"
#include "core/extend/param_reader.h"
#include "core/extend/spec_text.h"
#include "shard_map/primitive.h"

namespace shmap {

namespace {

std::vector<const Sharding*> shardings(ParamReader& r, const char* name,
                                       const detail::MeshImpl* mesh, std::size_t count) {
  const std::vector<PartitionSpec> specs = read_specs(r, name);
  if (specs.size() != count) {
    r.fail("'" + std::string(name) + "' has " + std::to_string(specs.size()) + " specs, and " +
           std::to_string(count) + " are wanted");
  }
  std::vector<const Sharding*> all;
  for (const PartitionSpec& spec : specs) {
    validate_spec(spec, *mesh->env(), std::string("shard_map: ") + name);
    all.push_back(mesh->sharding(spec));
  }
  return all;
}

// The axes that a function with this body is mapped over, and those that are manual around it: what
// else is in scope in the body.
MappedAxes mapped_axes(ParamReader& r, const detail::MeshImpl& mesh, const Jaxpr& body) {
  const detail::AxisEnv& env = *mesh.env();
  MappedAxes axes;
  if (r.has("axis_names")) {
    for (const std::string& name : r.names("axis_names")) {
      const int axis = env.find(name);
      if (axis < 0) r.fail("'axis_names' has '" + name + "', which is no axis of the mesh");
      axes.own |= 1u << axis;
    }
  } else {
    axes.own = all_axes(mesh);
  }
  if (body.env) {
    for (const std::string& name : body.env->names)
      if (const int axis = env.find(name); axis >= 0) axes.outer |= 1u << axis;
  }
  axes.outer &= ~axes.own;
  if (body.env != env_of(mesh, axes.manual())) {
    throw TypeError("shard_map: its body was not built for the mesh " + describe_axes(env) +
                    ": give JaxprBuilder that mesh");
  }
  return axes;
}

std::shared_ptr<const Params> read(ParamReader& r) {
  auto p = std::make_shared<ShardMapParams>();
  p->options.auto_pbroadcast = !r.has("auto_pbroadcast") || r.flag("auto_pbroadcast");
  p->options.check_vma = !r.has("check_vma") || r.flag("check_vma");
  p->jaxpr = r.program("jaxpr");
  p->over = mesh_of_text(r, read_mesh(r, "mesh"));
  if (!r.scope().mesh) r.scope().mesh = p->over;
  p->axes = mapped_axes(r, *p->over, *p->jaxpr);
  p->in = shardings(r, "in_specs", p->over, r.operands().size());
  p->out = shardings(r, "out_specs", p->over, p->jaxpr->outs.size());
  if (p->jaxpr->checks_variance != p->options.check_vma)
    r.fail("'check_vma' is not what the body was built with");
  for (std::size_t o = 0; o < p->out.size(); ++o) {
    const ShapedArray& type = p->jaxpr->outs[o].type();
    if (p->out[o]->dims().size() > type.dims().size()) {
      r.fail("'out_specs': the spec " + to_string(p->out[o]->spec()) + " of result " +
             std::to_string(o) + " is longer than the rank of a block of type " + to_string(type));
    }
    const std::uint32_t extra =
        type.axes().mask_in(*p->over->env()) & p->axes.own & ~p->out[o]->mentioned();
    if (p->options.check_vma && extra != 0) {
      throw TypeError("shard_map: result " + std::to_string(o) + " of the body has type " +
                      to_string(type) + ", which varies over mesh axes that its spec " +
                      to_string(p->out[o]->spec()) + " leaves out");
    }
  }
  return p;
}

}  // namespace

void register_shard_map_syntax() { shard_map_p.syntax = {0, kAnyNumber, read, nullptr}; }

}  // namespace shmap
