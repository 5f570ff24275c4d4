// CudnnGraph: operations of cuDNN on tensors of four dims, as one graph, for which the library
// compiles kernels. CudnnPlan: a graph that is ready to run.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cuda/libraries/cudnn_api.h"

namespace shmap::cuda {

struct DestroyCudnn {
  void operator()(cudnn::Descriptor d) const { cudnn_api().destroy_descriptor(d); }
};
using CudnnDescriptor = std::unique_ptr<void, DestroyCudnn>;

// The GPU that kernels are compiled for.
struct CudnnTarget {
  // Of the current GPU; null: compiles without a handle, for `device` (since cuDNN 9.8).
  cudnn::Handle handle = nullptr;
  cudnn::Descriptor device = nullptr;
};

// A GPU's properties, by cuDNN's text of them (JSON).
CudnnDescriptor cudnn_device(const std::string& json);

using Extents4 = std::array<std::int64_t, 4>;
Extents4 packed_strides(const Extents4& dims);

struct CudnnTensor {
  cudnn::Descriptor descriptor = nullptr;
  Extents4 dims = {1, 1, 1, 1};
};

class CudnnPlan;

class CudnnGraph {
 public:
  // A tensor in memory; `id`, at least 1, names it when the graph runs. Addresses are at multiples
  // of 16.
  CudnnTensor in_memory(std::int64_t id, cudnn::Data type, const Extents4& dims,
                        const Extents4& strides);
  // A number in the host's memory, which the graph keeps.
  CudnnTensor number(float value) { return add_number(value, cudnn::Data::f32); }
  CudnnTensor number(std::int32_t value) { return add_number(value, cudnn::Data::i32); }
  // An intermediate result, which is not stored.
  CudnnTensor between(const Extents4& dims, cudnn::Data type = cudnn::Data::f32) {
    return between(dims, type, packed_strides(dims));
  }
  CudnnTensor between(const Extents4& dims, cudnn::Data type, const Extents4& strides);

  // Each operation writes `y`, and returns it.
  CudnnTensor pointwise(cudnn::Pointwise mode, std::span<const CudnnTensor> x, CudnnTensor y,
                        cudnn::Data precision = cudnn::Data::f32, int axis = -1);
  CudnnTensor matmul(CudnnTensor a, CudnnTensor b, CudnnTensor y);
  CudnnTensor reduce(cudnn::Reduction op, CudnnTensor x, CudnnTensor y);
  CudnnTensor reshape(CudnnTensor x, CudnnTensor y);
  // y = x, op a number or a tensor, in f32.
  CudnnTensor op(cudnn::Pointwise mode, CudnnTensor x, CudnnTensor b, CudnnTensor y) {
    return pointwise(mode, std::array{x, b}, y);
  }
  CudnnTensor op(cudnn::Pointwise mode, CudnnTensor x, CudnnTensor y) {
    return pointwise(mode, std::span(&x, 1), y);
  }

  // cuDNN's proposals for the graph, the likeliest first, at most `most`; none if it has no kernel
  // for it. The plans share the graph's numbers, and may outlive the graph. Call once.
  std::vector<CudnnPlan> plans(const CudnnTarget& target, std::size_t most);

 private:
  friend class CudnnPlan;
  struct Number {
    std::int64_t id;
    std::variant<float, std::int32_t> value;
  };
  struct Owned {  // kept as long as a plan of the graph lives
    std::vector<CudnnDescriptor> descriptors;
    std::vector<std::unique_ptr<Number>> numbers;
  };
  template <class Value>
  CudnnTensor add_number(Value value, cudnn::Data type);
  CudnnTensor add_tensor(std::int64_t id, cudnn::Data type, const Extents4& dims,
                         const Extents4& strides, const cudnn::Attribute* flag);
  cudnn::Descriptor keep(CudnnDescriptor made);

  std::shared_ptr<Owned> owned_ = std::make_shared<Owned>();
  std::vector<cudnn::Descriptor> operations_;
  std::int64_t next_id_ = std::int64_t{1} << 32;  // of tensors without an address
};

// One way in which cuDNN computes a graph.
class CudnnPlan {
 public:
  // The plan's position among cuDNN's proposals and the number of its engine, "0: engine 6".
  const std::string& name() const { return name_; }
  // Compiles the plan, which takes up to seconds. Returns false, and sets `why`, if cuDNN cannot.
  bool compile(const CudnnTarget& target, std::string* why);
  std::int64_t workspace() const { return workspace_; }  // bytes, after compile()

  struct Address {
    std::int64_t id;
    const void* data;
  };
  // Enqueues the graph in the stream that the handle was given.
  cudnn::Status run(cudnn::Handle handle, std::span<const Address> tensors, void* workspace) const;

 private:
  friend class CudnnGraph;
  std::shared_ptr<CudnnGraph::Owned> graph_;
  CudnnDescriptor config_, plan_;
  std::string name_;
  std::int64_t workspace_ = 0;
};

}  // namespace shmap::cuda
