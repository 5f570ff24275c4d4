// The functions of cuBLASLt that this library calls. For the .cpp files that call them.
#pragma once
#include <cublasLt.h>

namespace shmap::cuda {

struct CublasLtApi {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

// cuBLASLt, opened at the first call. DeviceError where it is absent or too old. Any thread.
const CublasLtApi& cublaslt();

// Throws DeviceError where `status` is an error. `what`: the function.
void check(cublasStatus_t status, const char* what);

}  // namespace shmap::cuda
