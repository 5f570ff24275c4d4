#include "cuda/libraries/cudnn_graph.h"

#include "shmap/error.h"

namespace shmap::cuda {

using cudnn::Attribute;
using cudnn::Data;
using cudnn::Descriptor;
using cudnn::Kind;
using cudnn::Type;

namespace {

constexpr std::int64_t kTensorAlignment = 16;

CudnnDescriptor make(Kind kind) {
  Descriptor made = nullptr;
  check_cudnn(cudnn_api().create_descriptor(kind, &made), "cudnnBackendCreateDescriptor");
  return CudnnDescriptor(made);
}

void set(const CudnnDescriptor& d, Attribute what, Type type, std::int64_t count,
         const void* elements) {
  check_cudnn(cudnn_api().set(d.get(), what, type, count, elements), "cudnnBackendSetAttribute");
}
template <class T>
void set(const CudnnDescriptor& d, Attribute what, Type type, const T& value) {
  set(d, what, type, 1, &value);
}
void set(const CudnnDescriptor& d, Attribute what, const CudnnTensor& tensor) {
  set(d, what, Type::descriptor, tensor.descriptor);
}

void finalize(const CudnnDescriptor& d, const char* what) {
  check_cudnn(cudnn_api().finalize(d.get()), what);
}

}  // namespace

CudnnDescriptor cudnn_device(const std::string& json) {
  CudnnDescriptor device = make(Kind::device_properties);
  set(device, Attribute::device_json, Type::character, static_cast<std::int64_t>(json.size()),
      json.data());
  finalize(device, "cudnnBackendFinalize of a device's properties");
  return device;
}

Extents4 packed_strides(const Extents4& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

Descriptor CudnnGraph::keep(CudnnDescriptor made) {
  return owned_->descriptors.emplace_back(std::move(made)).get();
}

CudnnTensor CudnnGraph::add_tensor(std::int64_t id, Data type, const Extents4& dims,
                                   const Extents4& strides, const Attribute* flag) {
  CudnnDescriptor tensor = make(Kind::tensor);
  set(tensor, Attribute::tensor_type, Type::data_type, type);
  set(tensor, Attribute::tensor_dims, Type::int64, 4, dims.data());
  set(tensor, Attribute::tensor_strides, Type::int64, 4, strides.data());
  set(tensor, Attribute::tensor_id, Type::int64, id);
  set(tensor, Attribute::tensor_alignment, Type::int64, kTensorAlignment);
  if (flag != nullptr) set(tensor, *flag, Type::boolean, true);
  finalize(tensor, "cudnnBackendFinalize of a tensor");
  return {keep(std::move(tensor)), dims};
}

CudnnTensor CudnnGraph::in_memory(std::int64_t id, Data type, const Extents4& dims,
                                  const Extents4& strides) {
  return add_tensor(id, type, dims, strides, nullptr);
}

CudnnTensor CudnnGraph::between(const Extents4& dims, Data type, const Extents4& strides) {
  constexpr Attribute flag = Attribute::tensor_is_virtual;
  return add_tensor(next_id_++, type, dims, strides, &flag);
}

template <class Value>
CudnnTensor CudnnGraph::add_number(Value value, Data type) {
  constexpr Attribute flag = Attribute::tensor_is_by_value;
  const std::int64_t id = next_id_++;
  owned_->numbers.push_back(std::make_unique<Number>(Number{id, value}));
  return add_tensor(id, type, {1, 1, 1, 1}, {1, 1, 1, 1}, &flag);
}
template CudnnTensor CudnnGraph::add_number(float, Data);
template CudnnTensor CudnnGraph::add_number(std::int32_t, Data);

CudnnTensor CudnnGraph::pointwise(cudnn::Pointwise mode, std::span<const CudnnTensor> x,
                                  CudnnTensor y, Data precision, int axis) {
  CudnnDescriptor what = make(Kind::pointwise);
  set(what, Attribute::pointwise_mode, Type::pointwise_mode, mode);
  set(what, Attribute::pointwise_precision, Type::data_type, precision);
  if (axis >= 0) set(what, Attribute::pointwise_axis, Type::int64, std::int64_t{axis});
  finalize(what, "cudnnBackendFinalize of a pointwise operation's kind");
  CudnnDescriptor operation = make(Kind::pointwise_operation);
  set(operation, Attribute::pointwise_descriptor, Type::descriptor, keep(std::move(what)));
  constexpr Attribute kOperands[] = {Attribute::pointwise_x, Attribute::pointwise_b,
                                     Attribute::pointwise_t};
  for (std::size_t i = 0; i < x.size(); ++i) set(operation, kOperands[i], x[i]);
  set(operation, Attribute::pointwise_y, y);
  finalize(operation, "cudnnBackendFinalize of a pointwise operation");
  operations_.push_back(keep(std::move(operation)));
  return y;
}

CudnnTensor CudnnGraph::matmul(CudnnTensor a, CudnnTensor b, CudnnTensor y) {
  CudnnDescriptor what = make(Kind::matmul);
  set(what, Attribute::matmul_precision, Type::data_type, Data::f32);
  finalize(what, "cudnnBackendFinalize of a product's kind");
  CudnnDescriptor operation = make(Kind::matmul_operation);
  set(operation, Attribute::matmul_a, a);
  set(operation, Attribute::matmul_b, b);
  set(operation, Attribute::matmul_c, y);
  set(operation, Attribute::matmul_descriptor, Type::descriptor, keep(std::move(what)));
  finalize(operation, "cudnnBackendFinalize of a product");
  operations_.push_back(keep(std::move(operation)));
  return y;
}

CudnnTensor CudnnGraph::reduce(cudnn::Reduction op, CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor what = make(Kind::reduction);
  set(what, Attribute::reduction_operator, Type::reduction_operator, op);
  set(what, Attribute::reduction_precision, Type::data_type, Data::f32);
  finalize(what, "cudnnBackendFinalize of a reduction's kind");
  CudnnDescriptor operation = make(Kind::reduction_operation);
  set(operation, Attribute::reduction_x, x);
  set(operation, Attribute::reduction_y, y);
  set(operation, Attribute::reduction_descriptor, Type::descriptor, keep(std::move(what)));
  finalize(operation, "cudnnBackendFinalize of a reduction");
  operations_.push_back(keep(std::move(operation)));
  return y;
}

CudnnTensor CudnnGraph::reshape(CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor operation = make(Kind::reshape_operation);
  set(operation, Attribute::reshape_x, x);
  set(operation, Attribute::reshape_y, y);
  finalize(operation, "cudnnBackendFinalize of a reshape");
  operations_.push_back(keep(std::move(operation)));
  return y;
}

std::vector<CudnnPlan> CudnnGraph::plans(const CudnnTarget& target, std::size_t most) {
  CudnnDescriptor graph = make(Kind::graph);
  set(graph, Attribute::graph_operations, Type::descriptor,
      static_cast<std::int64_t>(operations_.size()), operations_.data());
  if (target.handle != nullptr) set(graph, Attribute::graph_handle, Type::handle, target.handle);
  finalize(graph, "cudnnBackendFinalize of a graph");
  CudnnDescriptor heuristics = make(Kind::heuristics);
  set(heuristics, Attribute::heuristics_graph, Type::descriptor, keep(std::move(graph)));
  set(heuristics, Attribute::heuristics_mode, Type::heuristics_mode, cudnn::Heuristics::a);
  if (target.handle == nullptr)
    set(heuristics, Attribute::heuristics_device, Type::descriptor, target.device);
  const CudnnApi& api = cudnn_api();
  if (api.finalize(heuristics.get()) != cudnn::kSuccess) return {};
  std::vector<CudnnDescriptor> configs(most);
  std::vector<Descriptor> into;
  for (CudnnDescriptor& config : configs)
    into.push_back((config = make(Kind::engine_config)).get());
  std::int64_t count = 0;
  if (api.get(heuristics.get(), Attribute::heuristics_results, Type::descriptor,
              static_cast<std::int64_t>(most), &count, into.data()) != cudnn::kSuccess)
    return {};
  std::vector<CudnnPlan> plans;
  for (std::size_t i = 0; i < most && static_cast<std::int64_t>(i) < count; ++i) {
    const CudnnDescriptor engine = make(Kind::engine);
    Descriptor found = engine.get();
    std::int64_t one = 0, number = -1;
    check_cudnn(
        api.get(configs[i].get(), Attribute::config_engine, Type::descriptor, 1, &one, &found),
        "cudnnBackendGetAttribute");
    check_cudnn(api.get(engine.get(), Attribute::engine_number, Type::int64, 1, &one, &number),
                "cudnnBackendGetAttribute");
    CudnnPlan& plan = plans.emplace_back();
    plan.graph_ = owned_;
    plan.config_ = std::move(configs[i]);
    plan.name_ = std::to_string(i) + ": engine " + std::to_string(number);
  }
  return plans;
}

bool CudnnPlan::compile(const CudnnTarget& target, std::string* why) {
  try {
    CudnnDescriptor plan = make(Kind::plan);
    if (target.handle != nullptr)
      set(plan, Attribute::plan_handle, Type::handle, target.handle);
    else
      set(plan, Attribute::plan_device, Type::descriptor, target.device);
    set(plan, Attribute::plan_config, Type::descriptor, config_.get());
    finalize(plan, "cudnnBackendFinalize of a plan");
    std::int64_t one = 0;
    check_cudnn(
        cudnn_api().get(plan.get(), Attribute::plan_workspace, Type::int64, 1, &one, &workspace_),
        "cudnnBackendGetAttribute");
    plan_ = std::move(plan);
    return true;
  } catch (const DeviceError& error) {
    *why = error.what();
    return false;
  }
}

cudnn::Status CudnnPlan::run(cudnn::Handle handle, std::span<const Address> tensors,
                             void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<const void*> data;
  for (const Address& tensor : tensors) {
    ids.push_back(tensor.id);
    data.push_back(tensor.data);
  }
  for (const auto& number : graph_->numbers) {
    ids.push_back(number->id);
    data.push_back(
        std::visit([](const auto& value) -> const void* { return &value; }, number->value));
  }
  const CudnnDescriptor pack = make(Kind::variant_pack);
  const auto count = static_cast<std::int64_t>(ids.size());
  set(pack, Attribute::pack_ids, Type::int64, count, ids.data());
  set(pack, Attribute::pack_addresses, Type::address, count, data.data());
  set(pack, Attribute::pack_workspace, Type::address, workspace);
  finalize(pack, "cudnnBackendFinalize of addresses");
  return cudnn_api().execute(handle, plan_.get(), pack.get());
}

}  // namespace shmap::cuda
