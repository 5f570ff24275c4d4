// Names and values of cuDNN's backend interface (cudnnBackendSetAttribute and its kin), as far as
// this library uses them, so that it compiles where cuDNN's headers are not installed. The values
// are part of cuDNN 9's binary interface; cudnn_spelling_test holds them against the headers where
// these are there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shmap::cudnn {

using Status = int;  // cudnnStatus_t
inline constexpr Status kSuccess = 0, kBadParam = 2000, kNotSupported = 3000, kInternalError = 4000,
                        kExecutionFailed = 5000;
using Handle = void*;      // cudnnHandle_t
using Descriptor = void*;  // cudnnBackendDescriptor_t

enum class Kind : int {  // of a descriptor
  pointwise = 0,
  engine = 2,
  engine_config = 3,
  heuristics = 4,
  plan = 5,
  pointwise_operation = 13,
  graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  matmul_operation = 19,
  reduction = 21,
  reduction_operation = 22,
  reshape_operation = 31,
  device_properties = 38,  // since 9.8
};

enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_precision = 1,
  pointwise_axis = 9,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  heuristics_device = 204,
  config_engine = 300,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace = 402,
  plan_device = 407,
  pointwise_descriptor = 750,
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  pointwise_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dims = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_addresses = 1001,
  pack_workspace = 1003,
  engine_number = 1301,
  matmul_precision = 1500,
  matmul_a = 1520,
  matmul_b = 1521,
  matmul_c = 1522,
  matmul_descriptor = 1523,
  reduction_operator = 1600,
  reduction_precision = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_descriptor = 1612,
  reshape_x = 2200,
  reshape_y = 2201,
  device_json = 2702,
};

enum class Type : int {  // of an attribute's elements
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  address = 6,
  heuristics_mode = 8,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_operator = 18,
  character = 24,
};

enum class Data : int { f32 = 0, f16 = 2, i32 = 4, bf16 = 9, boolean = 11 };

enum class Pointwise : int {
  add = 0,
  mul = 1,
  div = 6,
  sub = 9,
  exp = 13,
  log = 15,
  identity = 21,
  greater_equal = 303,
  index = 501,   // of an element along an axis
  select = 601,  // x where t is true, else b
};

enum class Reduction : int { add = 0, max = 3 };

enum class Heuristics : int { a = 3 };

}  // namespace shmap::cudnn
