#include "shmap/partitioned_jit.h"

#include <algorithm>
#include <mutex>

#include "core/array/tree_paths.h"
#include "core/base/counted.h"
#include "core/compiler/lowering/per_device.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "shard_map/spec_tree.h"

namespace shmap::detail {

// Remembers the specs' shardings of the latest call. A call whose arguments have the same structure
// and shardings need not match specs again.
class KnownSpecs {
 public:
  // The shardings of the arguments' leaves; nothing if the latest call was a different one.
  std::optional<std::vector<const Sharding*>> find(const void* tag, const std::string& key) const {
    std::lock_guard lock(mutex_);
    if (tag != tag_ || key != key_) return std::nullopt;
    return in_;
  }
  void set(const void* tag, const std::string& key, const std::vector<const Sharding*>& in) {
    std::lock_guard lock(mutex_);
    tag_ = tag;
    key_ = key;
    in_ = in;
  }

 private:
  mutable std::mutex mutex_;
  const void* tag_ = nullptr;
  std::string key_;
  std::vector<const Sharding*> in_;
};

namespace {

const MeshImpl* impl_of(const AnyMesh& mesh) {
  return mesh.mesh() ? mesh.mesh() : MeshImpl::abstract(mesh.env());
}

std::string made_at(const PartitionInfo& info) {
  return info.source.file ? "\n  in the jit over a mesh made at " + info.source.str()
                          : std::string();
}

void throw_all(const std::vector<std::string>& problems, const PartitionInfo& info) {
  if (problems.empty()) return;
  std::string text = "jit: ";
  if (problems.size() > 1) text += std::to_string(problems.size()) + " problems:\n  * ";
  for (std::size_t i = 0; i < problems.size(); ++i) text += (i ? "\n  * " : "") + problems[i];
  throw ValueError(text + made_at(info));
}

// The leaves of a tree with specs, and the sharding of each leaf. One error names every leaf that
// does not fit its spec.
struct Leaves {
  const TreeNode& tree;
  const std::vector<Array>& values;
  const char* root;  // "args"
};
std::vector<const Sharding*> shardings_of(const PartitionInfo& info, const Specs& specs,
                                          const char* specs_name, const Leaves& leaves) {
  std::vector<LeafSpec> found;
  try {
    found = match_specs(specs, leaves.tree, specs_name, leaves.root);
  } catch (const ValueError& e) {
    throw ValueError("jit: " + std::string(e.what()) + made_at(info));
  }
  std::vector<std::string> problems;
  std::vector<const Sharding*> shardings;
  for (std::size_t i = 0; i < leaves.values.size(); ++i) {
    shardings.push_back(info.mesh->sharding(*found[i].spec));
    const ShapedArray& type = node_of(leaves.values[i])->type;
    if (fits_spec(type, *found[i].spec, *shardings.back())) continue;
    problems.push_back(
        misfit_text(type, found[i], *shardings.back(), leaf_paths(leaves.tree, leaves.root)[i]));
  }
  throw_all(problems, info);
  return shardings;
}

// x with a sharding constraint, as an equation under the current trace.
Array constrained(Array x, const Sharding* sharding, SourceLine source) {
  return bind(sharding_constraint_p, std::move(x), ConstraintParams(sharding), source);
}

bool lies_so(const Array& x, const Sharding* sharding) {
  const StoredNode* node = stored_of(x);
  return node && node->trace == 0 && node->committed && node->sharding == sharding;
}

// The sharding to which an argument without a spec must be moved before the call; null: it need not
// be moved. An argument on the same devices in another order is on another mesh, which cannot be
// mixed with this mesh in one program.
const Sharding* place_without_spec(const Array& x, const MeshImpl* mesh) {
  const StoredNode* node = stored_of(x);
  const bool elsewhere =
      node && node->trace == 0 && node->committed && node->mesh != mesh && !node->mesh->is_single();
  return elsewhere ? mesh->replicated() : nullptr;
}

void check_placement(const PartitionInfo& info, const FlatTree& arguments) {
  if (info.mesh->is_abstract()) return;
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < arguments.leaves.size(); ++i) {
    const std::string other =
        other_devices("", arguments.leaves[i], info.mesh, "the function's program is split over");
    if (!other.empty()) problems.push_back(leaf_paths(arguments.node, "args")[i] + other);
  }
  throw_all(problems, info);
}

}  // namespace

PartitionInfo::PartitionInfo(AnyMesh m, std::optional<Specs> in, std::optional<Specs> out,
                             SourceLine s)
    : mesh(impl_of(m)),
      in_specs(std::move(in)),
      out_specs(std::move(out)),
      source(s),
      known(std::make_shared<KnownSpecs>()) {
  try {
    if (in_specs) validate_specs(*in_specs, *m.env(), "jit: in_specs");
    if (out_specs) validate_specs(*out_specs, *m.env(), "jit: out_specs");
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
  const void* const address = mesh;
  key.assign(reinterpret_cast<const char*>(&address), sizeof address);
  key += in_specs ? to_string(*in_specs) : "chosen";
  key += "->";
  key += out_specs ? to_string(*out_specs) : "chosen";
}

namespace {

// Checks the arguments of a call that differs from the latest one. Concrete arguments with other
// shardings are moved. Returns the shardings of in_specs, with null where a sharding is to be
// chosen.
std::vector<const Sharding*> place_arguments(const PartitionInfo& info, const Trace& trace,
                                             FlatTree& arguments) {
  for (std::size_t i = 0; i < arguments.leaves.size(); ++i) {
    const Node* node = node_of(arguments.leaves[i]);
    if (node && (node->trace == 0 || is_active(node->trace))) continue;
    const std::string what = "jit: " + leaf_paths(arguments.node, "args")[i];
    throw_escaped(checked_node(arguments.leaves[i], what.c_str(), info.source), what.c_str(),
                  info.source);
  }
  std::vector<const Sharding*> in(arguments.leaves.size(), nullptr);
  if (info.in_specs) {
    const Specs& specs = *info.in_specs;
    if (specs.kind() != Specs::leaf && specs.size() != arguments.node.children.size()) {
      throw ValueError("jit: in_specs = " + to_string(specs) + " has " +
                       counted(specs.size(), "entry", "entries") +
                       ", and the function was called with " +
                       counted(arguments.node.children.size(), "argument") +
                       ": give one entry for each argument, or one P for all" + made_at(info));
    }
    in = shardings_of(info, specs, "in_specs", {arguments.node, arguments.leaves, "args"});
  }
  check_placement(info, arguments);
  if (!trace.staged()) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      Array& x = arguments.leaves[i];
      const Sharding* to = in[i] ? in[i] : place_without_spec(x, info.mesh);
      if (to && !lies_so(x, to)) x = constrained(std::move(x), to, info.source);
    }
  }
  return in;
}

bool all_lie_so(const std::vector<Array>& leaves, const std::vector<const Sharding*>& in) {
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (!lies_so(leaves[i], in[i])) return false;
  return true;
}

}  // namespace

JitCache::Result PartitionInfo::call(JitCache& cache, JitCache::Call call,
                                     FlatTree arguments) const {
  const Trace& trace = current_trace();
  if (trace.axis_env() != nullptr) {
    throw ValueError(
        "jit over a mesh: called in the body of a shard_map, where arrays are the blocks of one "
        "device and a program of whole arrays has no meaning: call it outside of the body, or call "
        "the function itself in the body" +
        made_at(*this));
  }
  if (mesh->is_abstract() && !trace.staged()) {
    throw DeviceError("jit: the mesh " + describe_axes(*mesh->env()) +
                      " is abstract and has no devices, so the function cannot run: give it a "
                      "Mesh, or trace it with make_jaxpr" +
                      made_at(*this));
  }
  // Values under a transform have no sharding of their own, and are checked at each call.
  std::optional<std::vector<const Sharding*>> before;
  if (in_specs) before = known->find(call.tag, arguments.key);
  const bool as_before =
      before && before->size() == arguments.leaves.size() && all_lie_so(arguments.leaves, *before);
  const std::vector<const Sharding*> in =
      as_before ? std::move(*before) : place_arguments(*this, trace, arguments);
  if (in_specs && !as_before) known->set(call.tag, arguments.key, in);
  // The program has its specs as constraints, so that it can be differentiated, batched, explained
  // and staged into other programs, as any program with constraints.
  auto body = [&](std::vector<Array>& leaves, FlatTree& result) {
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i]) leaves[i] = constrained(std::move(leaves[i]), in[i], source);
    call.body(leaves, result);
    if (!out_specs) return;
    const std::vector<const Sharding*> out =
        shardings_of(*this, *out_specs, "out_specs", {result.node, result.leaves, "the result"});
    for (std::size_t o = 0; o < out.size(); ++o)
      result.leaves[o] = constrained(std::move(result.leaves[o]), out[o], source);
  };
  JitCache::Call partitioned = call;
  partitioned.body = BodyRef(body);
  partitioned.mesh = mesh;
  arguments.key += key;
  return cache.call(partitioned, std::move(arguments));
}

}  // namespace shmap::detail
