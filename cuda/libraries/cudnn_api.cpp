#include "cuda/libraries/cudnn_api.h"

#include <array>

#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

// 9.10.0 and 9.10.1 compute wrong attention, and older ones want other graphs.
constexpr std::size_t kOldestCudnn = 91002;

CudnnApi open_cudnn() {
  static constexpr const char* kNames[] = {"libcudnn.so.9"};
  static constexpr LateLibraryInfo kInfo = {"cuDNN", kNames, env::Var::cudnn_path,
                                            "cudnnBackendFinalize",
                                            "cuDNN 9 (the nvidia-cudnn wheel, cudnn9 in NVIDIA's "
                                            "repositories)"};
  const LateLibrary library(kInfo);
  CudnnApi api{};
  std::size_t (*version)();
  library.load("cudnnGetVersion", version);
  api.version = version();
  if (api.version < kOldestCudnn)
    library.throw_version(version_text(api.version), version_text(kOldestCudnn));
  library.load("cudnnGetErrorString", api.error_string);
  library.load("cudnnGetLastErrorString", api.last_error);
  library.load("cudnnCreate", api.create);
  library.load("cudnnDestroy", api.destroy);
  library.load("cudnnSetStream", api.set_stream);
  library.load("cudnnBackendCreateDescriptor", api.create_descriptor);
  library.load("cudnnBackendDestroyDescriptor", api.destroy_descriptor);
  library.load("cudnnBackendFinalize", api.finalize);
  library.load("cudnnBackendSetAttribute", api.set);
  library.load("cudnnBackendGetAttribute", api.get);
  library.load("cudnnBackendExecute", api.execute);
  return api;
}

}  // namespace

const CudnnApi& cudnn_api() {
  static const CudnnApi api = open_cudnn();  // a failed open_cudnn() throws, and is tried again at
                                             // the next call
  return api;
}

void check_cudnn(cudnn::Status status, const char* what) {
  if (status == cudnn::kSuccess) return;
  std::array<char, 512> said{};
  cudnn_api().last_error(said.data(), said.size());
  said.back() = '\0';
  throw DeviceError(std::string(what) + ": " + cudnn_api().error_string(status) +
                    (said.front() == '\0' ? "" : std::string(" (") + said.data() + ")"));
}

}  // namespace shmap::cuda
