// The eager trace of a shard_map body: each op runs when it is called, on the blocks of all local
// devices, under device-variance types (JEP 14273's "eager by default", JEP 17111's types).
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

struct PerDeviceOptions {
  bool check_variance = true;   // wrong variance is an error
  bool auto_pbroadcast = true;  // operands of unlike variance are cast; else that is an error
};

// Why a value may not go into a body over `mesh`: it was placed on other devices, and is not moved
// silently, since it may be the value or the mesh that is meant otherwise. Empty where it may; of
// one under a transform the value that there is decides. `what` names it; `function` says what the
// mesh is of.
std::string other_devices(const std::string& what, const Array& x, const detail::MeshImpl* mesh,
                          const char* function = "the function is mapped over");

class PerDeviceTrace : public Trace {
 public:
  // made: as of a Trace.
  PerDeviceTrace(const detail::MeshImpl* mesh, PerDeviceOptions options, SourceLine made = {});

  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
  const detail::AxisEnv* axis_env() const override { return mesh_->env(); }
  bool auto_pbroadcast() const override { return options_.auto_pbroadcast; }
  bool checks_variance() const override { return options_.check_variance; }

  const detail::MeshImpl* mesh() const { return mesh_; }
  const PerDeviceOptions& options() const { return options_; }

  // A concrete array as the block of each device under a sharding of this mesh: no data moves but
  // what placement needs. Its variance is what the sharding mentions. `what` names it in errors:
  // ValueError where it was placed on other devices (other_devices).
  Array enter(const Array& x, const Sharding* sharding, const std::string& what, SourceLine source);
  // A value used in the body but made outside of it: as an argument with the spec P(), once for
  // each array.
  Array close_over(const Array& x, SourceLine source);
  // A value of this trace: itself, or closed over. Literals stay literals.
  void admit(std::span<Array> in, const char* what, SourceLine source);

 private:
  const detail::MeshImpl* mesh_;
  PerDeviceOptions options_;
  struct Closed {
    Array original;  // kept alive, so that its address stays its own
    Array block;
  };
  std::unordered_map<const detail::NodeBase*, Closed> closed_;
};

}  // namespace shmap
