// The simulator's headers of cuBLASLt and NCCL against the libraries' own: every value. To check
// these: g++ -std=c++20 -fsyntax-only -isystem <toolkit>/include library_spelling_test.cpp
// (that every function is declared likewise shows in the tables of cuda/ and collectives/nccl/,
// which compile against either).
#include <cublasLt.h>
#include <gtest/gtest.h>
#include <nccl.h>

namespace {

#define SAME(name, value) static_assert(static_cast<int>(name) == value)
SAME(CUDA_R_32F, 0);
SAME(CUDA_R_64F, 1);
SAME(CUDA_R_16F, 2);
SAME(CUDA_R_16BF, 14);
SAME(CUBLAS_STATUS_SUCCESS, 0);
SAME(CUBLAS_STATUS_NOT_INITIALIZED, 1);
SAME(CUBLAS_STATUS_ALLOC_FAILED, 3);
SAME(CUBLAS_STATUS_INVALID_VALUE, 7);
SAME(CUBLAS_STATUS_EXECUTION_FAILED, 13);
SAME(CUBLAS_STATUS_INTERNAL_ERROR, 14);
SAME(CUBLAS_STATUS_NOT_SUPPORTED, 15);
SAME(CUBLAS_OP_N, 0);
SAME(CUBLAS_OP_T, 1);
SAME(CUBLAS_COMPUTE_32F, 68);
SAME(CUBLAS_COMPUTE_64F, 70);
SAME(CUBLAS_COMPUTE_32F_FAST_TF32, 77);
SAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5);
SAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6);
SAME(CUBLASLT_MATMUL_DESC_TRANSA, 3);
SAME(CUBLASLT_MATMUL_DESC_TRANSB, 4);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE, 7);
SAME(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8);
SAME(CUBLASLT_EPILOGUE_DEFAULT, 1);
SAME(CUBLASLT_EPILOGUE_RELU, 2);
SAME(CUBLASLT_EPILOGUE_BIAS, 4);
SAME(CUBLASLT_EPILOGUE_RELU_BIAS, 6);
SAME(CUBLASLT_EPILOGUE_GELU, 32);
SAME(CUBLASLT_EPILOGUE_GELU_BIAS, 36);
SAME(CUBLASLT_REDUCTION_SCHEME_NONE, 0);
SAME(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2);
SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1);
SAME(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8);
SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);
SAME(ncclSum, 0);
SAME(ncclProd, 1);
SAME(ncclMax, 2);
SAME(ncclMin, 3);
SAME(ncclInt8, 0);
SAME(ncclUint8, 1);
SAME(ncclInt32, 2);
SAME(ncclUint32, 3);
SAME(ncclInt64, 4);
SAME(ncclUint64, 5);
SAME(ncclFloat16, 6);
SAME(ncclFloat32, 7);
SAME(ncclFloat64, 8);
SAME(ncclBfloat16, 9);

static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64);
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96);

TEST(LibrarySpelling, ValuesAreTheLibraries) { EXPECT_EQ(NCCL_VERSION(2, 22, 3), 22203); }

}  // namespace
