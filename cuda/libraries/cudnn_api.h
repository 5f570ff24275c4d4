// The functions of cuDNN's backend interface that this library calls. For the .cpp files that call
// them.
#pragma once
#include <string>

#include "cuda/libraries/cudnn_names.h"

namespace shmap::cuda {

struct CudnnApi {
  std::size_t version;  // 91900 for 9.19.0
  const char* (*error_string)(cudnn::Status);
  void (*last_error)(char*, std::size_t);
  cudnn::Status (*create)(cudnn::Handle*);
  cudnn::Status (*destroy)(cudnn::Handle);
  cudnn::Status (*set_stream)(cudnn::Handle, void* stream);
  cudnn::Status (*create_descriptor)(cudnn::Kind, cudnn::Descriptor*);
  cudnn::Status (*destroy_descriptor)(cudnn::Descriptor);
  cudnn::Status (*finalize)(cudnn::Descriptor);
  cudnn::Status (*set)(cudnn::Descriptor, cudnn::Attribute, cudnn::Type, std::int64_t count,
                       const void* elements);
  cudnn::Status (*get)(cudnn::Descriptor, cudnn::Attribute, cudnn::Type, std::int64_t wanted,
                       std::int64_t* count, void* elements);
  cudnn::Status (*execute)(cudnn::Handle, cudnn::Descriptor plan, cudnn::Descriptor pack);
};

// cuDNN, opened at the first call. DeviceError where it is absent or too old. Any thread.
const CudnnApi& cudnn_api();

// Throws DeviceError where `status` is an error, with what cuDNN says about it. `what`: the
// function.
void check_cudnn(cudnn::Status status, const char* what);

}  // namespace shmap::cuda
