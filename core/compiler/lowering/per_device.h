// The trace of an eager shard_map body: each operation runs when it is called, on the blocks of all
// local devices, and types have a variance (JEP 14273's "eager by default", JEP 17111's types). A
// value of a body with automatic axes (automatic_axes.h) has a sharding over these, too.
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
  // made: as in Trace. The body is mapped over all axes of the mesh.
  PerDeviceTrace(const detail::MeshImpl* mesh, PerDeviceOptions options, SourceLine made = {});
  // manual: the mask of the axes that this body, or one around it, is mapped over; the others are
  // automatic. outer: the trace of the body around this one, over the same mesh; null where there
  // is none. The body may use values of `outer`.
  PerDeviceTrace(const detail::MeshImpl* mesh, PerDeviceOptions options, std::uint32_t manual,
                 const PerDeviceTrace* outer, SourceLine made);

  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
  const detail::AxisEnv* axis_env() const override { return env_; }
  bool auto_pbroadcast() const override { return options_.auto_pbroadcast; }
  bool checks_variance() const override { return options_.check_variance; }

  const detail::MeshImpl* mesh() const { return mesh_; }
  const PerDeviceOptions& options() const { return options_; }
  std::uint32_t automatic() const { return automatic_; }  // the mask of the automatic axes

  // A concrete array, or a value of the body around this one, as the block of each device, under a
  // sharding over this mesh that names manual axes. Data moves only where the array has another
  // sharding. The block varies over the axes that the sharding names, and stays split over the
  // automatic axes as the array is, as far as these divide its dims. ValueError, with `what` as the
  // array's name, where x was placed on other devices (other_devices).
  Array enter(const Array& x, const Sharding* sharding, const std::string& what, SourceLine source);
  // A value from outside that the body uses: entered as an argument with the spec P(), once for
  // each array.
  Array close_over(const Array& x, SourceLine source);
  // Makes each operand a value of this trace: values from outside are closed over, literals stay
  // literals.
  void admit(std::span<Array> in, const char* what, SourceLine source);

 private:
  bool is_around(const Node& node) const;  // whether it is a value of a body around this one

  const detail::MeshImpl* mesh_;
  PerDeviceOptions options_;
  std::uint32_t automatic_ = 0;
  const detail::AxisEnv* env_;  // of the manual axes
  const PerDeviceTrace* outer_ = nullptr;
  struct Closed {
    Array original;  // kept alive, so that no other array gets its address
    Array block;
  };
  std::unordered_map<const detail::NodeBase*, Closed> closed_;
};

}  // namespace shmap
