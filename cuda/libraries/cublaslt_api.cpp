#include "cuda/libraries/cublaslt_api.h"

#include <string>

#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

// The file name for the major version of the headers used at compile time.
#define SHMAP_TEXT(x) #x
#define SHMAP_CUBLASLT_FILE(major) "libcublasLt.so." SHMAP_TEXT(major)

namespace shmap::cuda {

namespace {

constexpr std::size_t kOldestCublasLt = 120400;  // 12.4

CublasLtApi open_cublaslt() {
  static constexpr const char* kNames[] = {SHMAP_CUBLASLT_FILE(CUBLAS_VER_MAJOR), "libcublasLt.so"};
  static constexpr LateLibraryInfo kInfo = {
      "cuBLASLt", kNames, env::Var::cublaslt_path, "cublasLtGetVersion",
      "the CUDA toolkit's libcublas (libcublaslt12 in Debian)"};
  const LateLibrary library(kInfo);
  CublasLtApi api{};
  library.load("cublasLtGetVersion", api.get_version);
  if (const std::size_t version = api.get_version(); version < kOldestCublasLt)
    library.throw_version(version_text(version), version_text(kOldestCublasLt));
  library.load("cublasLtGetStatusString", api.status_string);
  library.load("cublasLtCreate", api.create);
  library.load("cublasLtDestroy", api.destroy);
  library.load("cublasLtMatmul", api.matmul);
  library.load("cublasLtMatmulAlgoGetHeuristic", api.heuristic);
  library.load("cublasLtMatmulDescCreate", api.desc_create);
  library.load("cublasLtMatmulDescDestroy", api.desc_destroy);
  library.load("cublasLtMatmulDescSetAttribute", api.desc_set);
  library.load("cublasLtMatrixLayoutCreate", api.layout_create);
  library.load("cublasLtMatrixLayoutDestroy", api.layout_destroy);
  library.load("cublasLtMatrixLayoutSetAttribute", api.layout_set);
  library.load("cublasLtMatmulPreferenceCreate", api.preference_create);
  library.load("cublasLtMatmulPreferenceDestroy", api.preference_destroy);
  library.load("cublasLtMatmulPreferenceSetAttribute", api.preference_set);
  return api;
}

}  // namespace

const CublasLtApi& cublaslt() {
  static const CublasLtApi api = open_cublaslt();  // a failed open_cublaslt() throws, and is tried
                                                   // again at the next call
  return api;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string(what) + ": " + cublaslt().status_string(status));
}

}  // namespace shmap::cuda
