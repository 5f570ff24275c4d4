// The trace of an eager shard_map body: each operation runs when it is called, on the blocks of all
// local devices, and types have a variance (JEP 14273's "eager by default", JEP 17111's types).
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

struct PerDeviceOptions {
  bool check_variance = true;  // an operation on wrong variance is an error
  // operands of different variance are cast; otherwise they are an error
  bool auto_pbroadcast = true;
};

// Why x cannot enter a body over `mesh`, for an error; empty where it can. An array that was placed
// on other devices is not moved silently, since either the placement or the mesh may be the
// mistake. Under a transform the primal value decides. `what` names x; `function` says what the
// mesh belongs to.
std::string other_devices(const std::string& what, const Array& x, const detail::MeshImpl* mesh,
                          const char* function = "the function is mapped over");

class PerDeviceTrace : public Trace {
 public:
  // made: as in Trace.
  PerDeviceTrace(const detail::MeshImpl* mesh, PerDeviceOptions options, SourceLine made = {});

  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
  const detail::AxisEnv* axis_env() const override { return mesh_->env(); }
  bool auto_pbroadcast() const override { return options_.auto_pbroadcast; }
  bool checks_variance() const override { return options_.check_variance; }

  const detail::MeshImpl* mesh() const { return mesh_; }
  const PerDeviceOptions& options() const { return options_; }

  // A concrete array as the block of each device, under a sharding over this mesh. Data moves only
  // where the array has another sharding. The block varies over the axes that the sharding names.
  // ValueError, with `what` as the array's name, where x was placed on other devices
  // (other_devices).
  Array enter(const Array& x, const Sharding* sharding, const std::string& what, SourceLine source);
  // A value from outside that the body uses: entered as an argument with the spec P(), once for
  // each array.
  Array close_over(const Array& x, SourceLine source);
  // Makes each operand a value of this trace: values from outside are closed over, literals stay
  // literals.
  void admit(std::span<Array> in, const char* what, SourceLine source);

 private:
  const detail::MeshImpl* mesh_;
  PerDeviceOptions options_;
  struct Closed {
    Array original;  // kept alive, so that no other array gets its address
    Array block;
  };
  std::unordered_map<const detail::NodeBase*, Closed> closed_;
};

}  // namespace shmap
