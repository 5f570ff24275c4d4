// Replaces cuDNN's backend interface: reads graphs, and computes them when the stream reaches them.
// It is as strict as the library about the attributes of descriptors, about finalized descriptors,
// addresses and workspaces. It has two kernels for a graph, which give different bits: the second
// sums in reverse order and needs a workspace.
//
// cuDNN exists if SHMAP_SIM_CUDNN is set; otherwise its version is 0.
#include <cuda_sim.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_program.h"

namespace {

using namespace shmap::cudnn;
using shmap_sim::DnnOperation;
using shmap_sim::DnnTensor;
using shmap_sim::Four;

constexpr std::int64_t kEngines = 2;
constexpr std::int64_t kWorkspace = 4096;  // bytes for the second kernel

struct Context {
  int device = 0;
  cudaStream_t stream = nullptr;
};

struct Object {
  Kind kind;
  bool is_final = false;
  std::map<Attribute, std::vector<std::byte>> values;
  std::map<Attribute, std::vector<std::shared_ptr<Object>>> objects;
  std::int64_t engine = -1;  // of an engine, a configuration, a plan

  template <class T>
  std::vector<T> all(Attribute what) const {
    const auto it = values.find(what);
    if (it == values.end()) return {};
    std::vector<T> out(it->second.size() / sizeof(T));
    std::memcpy(out.data(), it->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(Attribute what, T otherwise = T{}) const {
    const std::vector<T> found = all<T>(what);
    return found.empty() ? otherwise : found.front();
  }
  const Object* object(Attribute what) const {
    const auto it = objects.find(what);
    return it == objects.end() || it->second.empty() ? nullptr : it->second.front().get();
  }
};
using Shared = std::shared_ptr<Object>;

thread_local std::string last_error;
Status fail(Status status, const std::string& text) {
  last_error = text;
  return status;
}

Shared& shared(Descriptor d) { return *static_cast<Shared*>(d); }

std::size_t size_of(Type type) {
  switch (type) {
    case Type::handle:
    case Type::int64:
    case Type::address:
      return 8;
    case Type::boolean:
    case Type::character:
      return 1;
    default:
      return 4;
  }
}

DnnTensor tensor_of(const Object& o) {
  const auto four = [&](Attribute what) {
    Four out{};
    std::ranges::copy(o.all<std::int64_t>(what), out.begin());
    return out;
  };
  return {o.one<std::int64_t>(Attribute::tensor_id),
          o.one<Data>(Attribute::tensor_type),
          four(Attribute::tensor_dims),
          four(Attribute::tensor_strides),
          o.one<char>(Attribute::tensor_is_virtual) != 0,
          o.one<char>(Attribute::tensor_is_by_value) != 0};
}

struct OperationForm {
  Attribute descriptor;
  std::vector<Attribute> x;
  Attribute y;
};
const OperationForm* form_of(Kind kind) {
  static const std::map<Kind, OperationForm> forms = {
      {Kind::pointwise_operation,
       {Attribute::pointwise_descriptor,
        {Attribute::pointwise_x, Attribute::pointwise_b, Attribute::pointwise_t},
        Attribute::pointwise_y}},
      {Kind::matmul_operation,
       {Attribute::matmul_descriptor,
        {Attribute::matmul_a, Attribute::matmul_b},
        Attribute::matmul_c}},
      {Kind::reduction_operation,
       {Attribute::reduction_descriptor, {Attribute::reduction_x}, Attribute::reduction_y}},
      {Kind::reshape_operation,
       {Attribute::reshape_x, {Attribute::reshape_x}, Attribute::reshape_y}}};
  const auto it = forms.find(kind);
  return it == forms.end() ? nullptr : &it->second;
}

DnnOperation operation_of(const Object& o) {
  const OperationForm& form = *form_of(o.kind);
  DnnOperation op;
  op.kind = o.kind;
  const Object& what = *o.object(form.descriptor);
  op.mode = what.one<Pointwise>(Attribute::pointwise_mode);
  op.axis = static_cast<int>(what.one<std::int64_t>(Attribute::pointwise_axis, -1));
  op.reduction = what.one<Reduction>(Attribute::reduction_operator);
  for (const Attribute x : form.x)
    if (const Object* t = o.object(x)) op.x.push_back(tensor_of(*t));
  op.y = tensor_of(*o.object(form.y));
  return op;
}

std::vector<DnnOperation> operations_of(const Object& graph) {
  std::vector<DnnOperation> out;
  for (const Shared& o : graph.objects.at(Attribute::graph_operations))
    out.push_back(operation_of(*o));
  return out;
}

// True if each intermediate result is written by one operation before it is read.
bool is_ordered(const std::vector<DnnOperation>& operations) {
  std::vector<std::int64_t> written;
  for (const DnnOperation& op : operations) {
    for (const DnnTensor& x : op.x)
      if (x.is_virtual && std::ranges::find(written, x.id) == written.end()) return false;
    if (std::ranges::find(written, op.y.id) != written.end()) return false;
    written.push_back(op.y.id);
  }
  return true;
}

// Rows of 16-bit operands in memory must consist of whole pieces of 16 bytes.
bool has_kernel(const std::vector<DnnOperation>& operations) {
  const auto lies = [](const DnnTensor& t) {
    if (t.is_virtual || t.is_by_value || (t.type != Data::f16 && t.type != Data::bf16)) return true;
    const std::size_t feature = t.strides[3] == 1 ? 3 : 2, row = 5 - feature;
    return t.strides[feature] == 1 && t.dims[feature] % 8 == 0 && t.strides[row] % 8 == 0;
  };
  return std::ranges::all_of(operations, [&](const DnnOperation& op) {
    const bool adds = op.kind == Kind::pointwise_operation && op.mode == Pointwise::add;  // a bias
    return lies(op.y) && (adds || std::ranges::all_of(op.x, lies));
  });
}

// The library loads code when it compiles a plan, which a capture forbids unless its thread is in
// relaxed mode.
bool loads() { return cudaFree(nullptr) == cudaSuccess; }

Status finalize(Object& o) {
  const auto has = [&](Attribute what) { return o.values.contains(what); };
  switch (o.kind) {
    case Kind::tensor: {
      const std::size_t rank = o.all<std::int64_t>(Attribute::tensor_dims).size();
      if (!has(Attribute::tensor_type) || !has(Attribute::tensor_id) ||
          !has(Attribute::tensor_alignment) || rank != 4 ||
          o.all<std::int64_t>(Attribute::tensor_strides).size() != rank)
        return fail(kBadParam, "an incomplete tensor");
      for (const std::int64_t n : o.all<std::int64_t>(Attribute::tensor_dims))
        if (n < 1) return fail(kBadParam, "a dim of no elements");
      return kSuccess;
    }
    case Kind::graph: {
      if (o.objects[Attribute::graph_operations].empty() || !is_ordered(operations_of(o)))
        return fail(kBadParam, "operations that do not follow each other");
      return kSuccess;
    }
    case Kind::heuristics: {
      const Object* graph = o.object(Attribute::heuristics_graph);
      if (graph == nullptr || !graph->values.contains(Attribute::graph_handle))
        return fail(kBadParam, "heuristics without a graph or a GPU");
      return has_kernel(operations_of(*graph)) ? kSuccess
                                               : fail(kNotSupported, "no kernel for that layout");
    }
    case Kind::plan: {
      const Object* config = o.object(Attribute::plan_config);
      if (config == nullptr || !has(Attribute::plan_handle))
        return fail(kBadParam, "a plan without a configuration or a GPU");
      if (shmap_sim::injected("cudnnPlan") != cudaSuccess)
        return fail(kInternalError, "the compiler fails");
      o.engine = config->engine;
      return loads() ? kSuccess : fail(kInternalError, "loads code during a capture");
    }
    case Kind::variant_pack:
      return o.all<std::int64_t>(Attribute::pack_ids).size() ==
                     o.all<void*>(Attribute::pack_addresses).size()
                 ? kSuccess
                 : fail(kBadParam, "not an address for each tensor");
    default:
      break;
  }
  const OperationForm* form = form_of(o.kind);
  if (form == nullptr) return kSuccess;
  if (o.object(form->descriptor) == nullptr || o.object(form->x.front()) == nullptr ||
      o.object(form->y) == nullptr || !fits(operation_of(o)))
    return fail(kBadParam, "an operation whose operands do not go together");
  return kSuccess;
}

const Object* graph_of(const Object& plan) {
  return plan.object(Attribute::plan_config)
      ->object(Attribute::config_engine)
      ->object(Attribute::graph_operations);
}

Status execute(Context& handle, const Object& plan, const Object& pack) {
  const std::vector<DnnOperation> operations = operations_of(*graph_of(plan));
  const std::vector<std::int64_t> ids = pack.all<std::int64_t>(Attribute::pack_ids);
  const std::vector<void*> given = pack.all<void*>(Attribute::pack_addresses);
  std::map<std::int64_t, void*> addresses;
  for (std::size_t i = 0; i < ids.size(); ++i) addresses[ids[i]] = given[i];
  auto numbers = std::make_shared<std::map<std::int64_t, std::int64_t>>();
  std::size_t known = 0;
  std::map<std::int64_t, bool> seen;
  for (const DnnOperation& op : operations) {
    std::vector<DnnTensor> tensors = op.x;
    tensors.push_back(op.y);
    for (const DnnTensor& t : tensors) {
      if (t.is_virtual || seen[t.id]) continue;
      seen[t.id] = true;
      ++known;
      void*& address = addresses[t.id];
      if (address == nullptr) return fail(kBadParam, "a tensor without an address");
      if (t.is_by_value) {  // read now
        std::memcpy(&(*numbers)[t.id], address, 4);
        address = &(*numbers)[t.id];
      } else if (!shmap_sim::is_device_memory(address) ||
                 reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
        return fail(kBadParam, "an address that is not the GPU's, or not aligned");
      }
    }
  }
  if (known != addresses.size()) return fail(kBadParam, "an address of no tensor");
  void* const workspace = pack.one<void*>(Attribute::pack_workspace);
  if (plan.engine == 2 && !shmap_sim::is_device_memory(workspace))
    return fail(kBadParam, "no workspace");
  if (shmap_sim::device_of(handle.stream) != handle.device)
    return fail(kBadParam, "a stream of another GPU");
  shmap_sim::log_call("cudnnBackendExecute engine " + std::to_string(plan.engine) + ", " +
                      std::to_string(operations.size()) + " operations");
  const bool second = plan.engine == 2;
  const cudaError_t error = shmap_sim::enqueue(handle.stream, "cudnnBackendExecute",
                                               [operations, addresses, numbers, second, workspace] {
                                                 if (second)
                                                   std::memset(workspace, 0x5a, kWorkspace);
                                                 shmap_sim::run(operations, addresses, second);
                                               });
  return error == cudaSuccess ? kSuccess : fail(kExecutionFailed, cudaGetErrorString(error));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

std::size_t cudnnGetVersion() { return std::getenv("SHMAP_SIM_CUDNN") != nullptr ? 91901 : 0; }

const char* cudnnGetErrorString(Status status) {
  return status == kSuccess        ? "the cuDNN of the simulator: success"
         : status == kBadParam     ? "the cuDNN of the simulator: a bad parameter"
         : status == kNotSupported ? "the cuDNN of the simulator: not supported"
                                   : "the cuDNN of the simulator: an error";
}
void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  std::strncpy(text, last_error.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
}

Status cudnnCreate(Handle* handle) {
  if (shmap_sim::injected("cudnnCreate") != cudaSuccess) return fail(kInternalError, "no handle");
  auto* made = new Context;
  *handle = made;
  return cudaGetDevice(&made->device) == cudaSuccess && loads() ? kSuccess : kInternalError;
}
Status cudnnDestroy(Handle handle) {
  delete static_cast<Context*>(handle);
  return kSuccess;
}
Status cudnnSetStream(Handle handle, void* stream) {
  static_cast<Context*>(handle)->stream = static_cast<cudaStream_t>(stream);
  return kSuccess;
}

Status cudnnBackendCreateDescriptor(Kind kind, Descriptor* descriptor) {
  *descriptor = new Shared(std::make_shared<Object>(Object{kind, false, {}, {}, -1}));
  return kSuccess;
}
Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  delete static_cast<Shared*>(descriptor);
  return kSuccess;
}
Status cudnnBackendFinalize(Descriptor descriptor) {
  Object& o = *shared(descriptor);
  if (const Status status = finalize(o)) return status;
  o.is_final = true;
  return kSuccess;
}

Status cudnnBackendSetAttribute(Descriptor descriptor, Attribute what, Type type,
                                std::int64_t count, const void* elements) {
  Object& o = *shared(descriptor);
  if (o.is_final) return fail(kBadParam, "a finalized descriptor is changed");
  if (type != Type::descriptor) {
    const auto* from = static_cast<const std::byte*>(elements);
    o.values[what].assign(from, from + static_cast<std::size_t>(count) * size_of(type));
    return kSuccess;
  }
  std::vector<Shared>& to = o.objects[what];
  to.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    const Shared& element = shared(static_cast<const Descriptor*>(elements)[i]);
    // A configuration that the heuristics gave is complete.
    if (!element->is_final) return fail(kBadParam, "a descriptor that is not finalized");
    to.push_back(element);
  }
  return kSuccess;
}

Status cudnnBackendGetAttribute(Descriptor descriptor, Attribute what, Type, std::int64_t wanted,
                                std::int64_t* count, void* elements) {
  Object& o = *shared(descriptor);
  if (!o.is_final) return fail(kBadParam, "a descriptor that is not finalized is read");
  *count = 1;
  switch (what) {
    case Attribute::heuristics_results:
      *count = std::min(wanted, kEngines);
      for (std::int64_t i = 0; i < *count; ++i) {
        Object& config = *shared(static_cast<Descriptor*>(elements)[i]);
        auto engine = std::make_shared<Object>(Object{Kind::engine, true, {}, {}, i + 1});
        engine->objects[Attribute::graph_operations] = o.objects.at(Attribute::heuristics_graph);
        config.objects[Attribute::config_engine] = {engine};
        config.engine = i + 1;
        config.is_final = true;
      }
      return kSuccess;
    case Attribute::config_engine:
      shared(*static_cast<Descriptor*>(elements)) = o.objects.at(what).front();
      return kSuccess;
    case Attribute::engine_number:
      *static_cast<std::int64_t*>(elements) = o.engine;
      return kSuccess;
    case Attribute::plan_workspace:
      *static_cast<std::int64_t*>(elements) = o.engine == 2 ? kWorkspace : 0;
      return kSuccess;
    default:
      return fail(kNotSupported, "an attribute that cannot be read");
  }
}

Status cudnnBackendExecute(Handle handle, Descriptor plan, Descriptor pack) {
  if (shmap_sim::injected("cudnnBackendExecute") != cudaSuccess)
    return fail(kExecutionFailed, "the launch fails");
  if (!shared(plan)->is_final || !shared(pack)->is_final)
    return fail(kBadParam, "what is not finalized is executed");
  return execute(*static_cast<Context*>(handle), *shared(plan), *shared(pack));
}

}  // extern "C"
#pragma GCC visibility pop
