// The simulator's headers against the toolkit's: every value, and a call of every function. To
// check a toolkit: g++ -std=c++20 -fsyntax-only -isystem <toolkit>/include
// toolkit_spelling_test.cpp
#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <type_traits>

namespace {

#define SAME(name, value) static_assert(static_cast<int>(name) == value)
SAME(cudaSuccess, 0);
SAME(cudaErrorInvalidValue, 1);
SAME(cudaErrorMemoryAllocation, 2);
SAME(cudaErrorInitializationError, 3);
SAME(cudaErrorCudartUnloading, 4);
SAME(cudaErrorInvalidConfiguration, 9);
SAME(cudaErrorInvalidPitchValue, 12);
SAME(cudaErrorInvalidSymbol, 13);
SAME(cudaErrorInvalidHostPointer, 16);
SAME(cudaErrorInvalidDevicePointer, 17);
SAME(cudaErrorInvalidMemcpyDirection, 21);
SAME(cudaErrorStubLibrary, 34);
SAME(cudaErrorInsufficientDriver, 35);
SAME(cudaErrorCallRequiresNewerDriver, 36);
SAME(cudaErrorDevicesUnavailable, 46);
SAME(cudaErrorInvalidDeviceFunction, 98);
SAME(cudaErrorNoDevice, 100);
SAME(cudaErrorInvalidDevice, 101);
SAME(cudaErrorInvalidKernelImage, 200);
SAME(cudaErrorDeviceUninitialized, 201);
SAME(cudaErrorNoKernelImageForDevice, 209);
SAME(cudaErrorECCUncorrectable, 214);
SAME(cudaErrorPeerAccessUnsupported, 217);
SAME(cudaErrorInvalidPtx, 218);
SAME(cudaErrorUnsupportedPtxVersion, 222);
SAME(cudaErrorFileNotFound, 301);
SAME(cudaErrorOperatingSystem, 304);
SAME(cudaErrorInvalidResourceHandle, 400);
SAME(cudaErrorIllegalState, 401);
SAME(cudaErrorSymbolNotFound, 500);
SAME(cudaErrorNotReady, 600);
SAME(cudaErrorIllegalAddress, 700);
SAME(cudaErrorLaunchOutOfResources, 701);
SAME(cudaErrorLaunchTimeout, 702);
SAME(cudaErrorPeerAccessAlreadyEnabled, 704);
SAME(cudaErrorPeerAccessNotEnabled, 705);
SAME(cudaErrorContextIsDestroyed, 709);
SAME(cudaErrorAssert, 710);
SAME(cudaErrorTooManyPeers, 711);
SAME(cudaErrorHostMemoryAlreadyRegistered, 712);
SAME(cudaErrorHostMemoryNotRegistered, 713);
SAME(cudaErrorHardwareStackError, 714);
SAME(cudaErrorIllegalInstruction, 715);
SAME(cudaErrorMisalignedAddress, 716);
SAME(cudaErrorInvalidAddressSpace, 717);
SAME(cudaErrorInvalidPc, 718);
SAME(cudaErrorLaunchFailure, 719);
SAME(cudaErrorNotPermitted, 800);
SAME(cudaErrorNotSupported, 801);
SAME(cudaErrorSystemNotReady, 802);
SAME(cudaErrorSystemDriverMismatch, 803);
SAME(cudaErrorMpsClientTerminated, 810);
SAME(cudaErrorStreamCaptureUnsupported, 900);
SAME(cudaErrorStreamCaptureInvalidated, 901);
SAME(cudaErrorStreamCaptureMerge, 902);
SAME(cudaErrorStreamCaptureUnmatched, 903);
SAME(cudaErrorStreamCaptureUnjoined, 904);
SAME(cudaErrorStreamCaptureIsolation, 905);
SAME(cudaErrorStreamCaptureImplicit, 906);
SAME(cudaErrorCapturedEvent, 907);
SAME(cudaErrorStreamCaptureWrongThread, 908);
SAME(cudaErrorTimeout, 909);
SAME(cudaErrorGraphExecUpdateFailure, 910);
SAME(cudaErrorUnknown, 999);
SAME(cudaMemcpyHostToHost, 0);
SAME(cudaMemcpyHostToDevice, 1);
SAME(cudaMemcpyDeviceToHost, 2);
SAME(cudaMemcpyDeviceToDevice, 3);
SAME(cudaMemcpyDefault, 4);
SAME(cudaMemoryTypeUnregistered, 0);
SAME(cudaMemoryTypeHost, 1);
SAME(cudaMemoryTypeDevice, 2);
SAME(cudaMemoryTypeManaged, 3);
SAME(cudaStreamCaptureStatusNone, 0);
SAME(cudaStreamCaptureStatusActive, 1);
SAME(cudaStreamCaptureStatusInvalidated, 2);
SAME(cudaStreamCaptureModeGlobal, 0);
SAME(cudaStreamCaptureModeThreadLocal, 1);
SAME(cudaStreamCaptureModeRelaxed, 2);
SAME(cudaGraphNodeTypeKernel, 0x00);
SAME(cudaGraphNodeTypeMemcpy, 0x01);
SAME(cudaGraphNodeTypeMemset, 0x02);
SAME(cudaGraphNodeTypeHost, 0x03);
SAME(cudaGraphNodeTypeGraph, 0x04);
SAME(cudaGraphNodeTypeEmpty, 0x05);
SAME(cudaGraphNodeTypeWaitEvent, 0x06);
SAME(cudaGraphNodeTypeEventRecord, 0x07);
SAME(cudaGraphNodeTypeMemAlloc, 0x0a);
SAME(cudaGraphNodeTypeMemFree, 0x0b);
SAME(cudaGraphInstantiateFlagAutoFreeOnLaunch, 1);
SAME(cudaGraphInstantiateFlagUpload, 2);
SAME(cudaGraphInstantiateFlagDeviceLaunch, 4);
SAME(cudaGraphInstantiateFlagUseNodePriority, 8);
SAME(cudaGraphExecUpdateSuccess, 0x0);
SAME(cudaGraphExecUpdateError, 0x1);
SAME(cudaGraphExecUpdateErrorTopologyChanged, 0x2);
SAME(cudaGraphExecUpdateErrorNodeTypeChanged, 0x3);
SAME(cudaGraphExecUpdateErrorFunctionChanged, 0x4);
SAME(cudaGraphExecUpdateErrorParametersChanged, 0x5);
SAME(cudaGraphExecUpdateErrorNotSupported, 0x6);
SAME(cudaGraphExecUpdateErrorUnsupportedFunctionChange, 0x7);
SAME(cudaGraphExecUpdateErrorAttributesChanged, 0x8);
SAME(cudaLaunchAttributeIgnore, 0);
SAME(cudaLaunchAttributeCooperative, 2);
SAME(cudaLaunchAttributeClusterDimension, 4);
SAME(cudaLaunchAttributeProgrammaticStreamSerialization, 6);
SAME(cudaLaunchAttributePriority, 8);
SAME(cudaFuncAttributeMaxDynamicSharedMemorySize, 8);
SAME(cudaFuncAttributePreferredSharedMemoryCarveout, 9);
SAME(cudaDriverEntryPointSuccess, 0);
SAME(cudaDriverEntryPointSymbolNotFound, 1);
SAME(cudaDriverEntryPointVersionNotSufficent, 2);
SAME(cudaEnableDefault, 0x0);
SAME(cudaEnableLegacyStream, 0x1);
SAME(cudaEnablePerThreadDefaultStream, 0x2);
SAME(cudaMemPoolReuseFollowEventDependencies, 0x1);
SAME(cudaMemPoolReuseAllowOpportunistic, 0x2);
SAME(cudaMemPoolReuseAllowInternalDependencies, 0x3);
SAME(cudaMemPoolAttrReleaseThreshold, 0x4);
SAME(cudaMemPoolAttrReservedMemCurrent, 0x5);
SAME(cudaMemPoolAttrReservedMemHigh, 0x6);
SAME(cudaMemPoolAttrUsedMemCurrent, 0x7);
SAME(cudaMemPoolAttrUsedMemHigh, 0x8);
SAME(cudaDevAttrMaxThreadsPerBlock, 1);
SAME(cudaDevAttrMaxBlockDimX, 2);
SAME(cudaDevAttrMaxBlockDimY, 3);
SAME(cudaDevAttrMaxBlockDimZ, 4);
SAME(cudaDevAttrMaxGridDimX, 5);
SAME(cudaDevAttrMaxGridDimY, 6);
SAME(cudaDevAttrMaxGridDimZ, 7);
SAME(cudaDevAttrMaxSharedMemoryPerBlock, 8);
SAME(cudaDevAttrWarpSize, 10);
SAME(cudaDevAttrClockRate, 13);
SAME(cudaDevAttrMultiProcessorCount, 16);
SAME(cudaDevAttrComputeMode, 20);
SAME(cudaDevAttrConcurrentKernels, 31);
SAME(cudaDevAttrPciBusId, 33);
SAME(cudaDevAttrPciDeviceId, 34);
SAME(cudaDevAttrMemoryClockRate, 36);
SAME(cudaDevAttrGlobalMemoryBusWidth, 37);
SAME(cudaDevAttrL2CacheSize, 38);
SAME(cudaDevAttrMaxThreadsPerMultiProcessor, 39);
SAME(cudaDevAttrAsyncEngineCount, 40);
SAME(cudaDevAttrUnifiedAddressing, 41);
SAME(cudaDevAttrPciDomainId, 50);
SAME(cudaDevAttrComputeCapabilityMajor, 75);
SAME(cudaDevAttrComputeCapabilityMinor, 76);
SAME(cudaDevAttrStreamPrioritiesSupported, 78);
SAME(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81);
SAME(cudaDevAttrMaxRegistersPerMultiprocessor, 82);
SAME(cudaDevAttrManagedMemory, 83);
SAME(cudaDevAttrCooperativeLaunch, 95);
SAME(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97);
SAME(cudaDevAttrHostRegisterSupported, 99);
SAME(cudaDevAttrMaxBlocksPerMultiprocessor, 106);
SAME(cudaDevAttrMemoryPoolsSupported, 115);
SAME(cudaHostAllocDefault, 0x00);
SAME(cudaHostAllocPortable, 0x01);
SAME(cudaHostAllocMapped, 0x02);
SAME(cudaHostAllocWriteCombined, 0x04);
SAME(cudaHostRegisterDefault, 0x00);
SAME(cudaHostRegisterPortable, 0x01);
SAME(cudaPeerAccessDefault, 0x00);
SAME(cudaStreamDefault, 0x00);
SAME(cudaStreamNonBlocking, 0x01);
SAME(cudaEventDefault, 0x00);
SAME(cudaEventBlockingSync, 0x01);
SAME(cudaEventDisableTiming, 0x02);
SAME(cudaEventRecordDefault, 0x00);
SAME(cudaEventWaitDefault, 0x00);
#undef SAME

void on_host(void* flag) { *static_cast<bool*>(flag) = true; }

TEST(ToolkitSpelling, EveryFunction) {
  setenv("SHMAP_SIM_GPUS", "2", 1);
  int i = 0;
  size_t n = 0;
  size_t m = 0;
  unsigned flags = 0;
  char text[32];
#define OK(call) ASSERT_EQ((call), cudaSuccess) << cudaGetErrorName(cudaPeekAtLastError())
  OK(cudaGetDeviceCount(&i));
  OK(cudaSetDevice(0));
  OK(cudaGetDevice(&i));
  cudaDeviceProp properties;
  OK(cudaGetDeviceProperties(&properties, 0));
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_EQ(properties.major * 10 + properties.minor, 90);
  OK(cudaDeviceGetAttribute(&i, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(i, properties.multiProcessorCount);
  OK(cudaDeviceGetPCIBusId(text, sizeof(text), 0));
  OK(cudaDriverGetVersion(&i));
  OK(cudaRuntimeGetVersion(&i));
  EXPECT_EQ(i, CUDART_VERSION);
  OK(cudaDeviceCanAccessPeer(&i, 0, 1));
  OK(cudaDeviceEnablePeerAccess(1, 0));
  OK(cudaDeviceDisablePeerAccess(1));
  int least = 0;
  int greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LT(greatest, least);

  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  OK(cudaStreamGetPriority(stream, &i));
  EXPECT_EQ(i, greatest);
  OK(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  unsigned long long id = 0;
  OK(cudaStreamGetId(stream, &id));

  float* x = nullptr;
  float* y = nullptr;
  void* pinned = nullptr;
  OK(cudaMalloc(&x, 64));
  OK(cudaMallocAsync(&y, 64, stream));
  OK(cudaMallocHost(&pinned, 64));
  OK(cudaFreeHost(pinned));
  OK(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable));
  OK(cudaMemGetInfo(&n, &m));
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, x));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.devicePointer, x);
  cudaMemPool_t pool = nullptr;
  unsigned long long threshold = 1 << 20;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolTrimTo(pool, 0));
  alignas(64) static char mine[64];
  OK(cudaHostRegister(mine, sizeof(mine), cudaHostRegisterDefault));
  OK(cudaHostUnregister(mine));

  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  OK(cudaEventRecord(start, stream));
  OK(cudaMemset(x, 0, 64));
  OK(cudaMemsetAsync(x, 0, 64, stream));
  OK(cudaMemset2DAsync(x, 16, 1, 4, 4, stream));
  OK(cudaMemcpy(mine, x, 64, cudaMemcpyDeviceToHost));
  OK(cudaMemcpyAsync(y, x, 64, cudaMemcpyDeviceToDevice, stream));
  OK(cudaMemcpy2D(mine, 8, x, 16, 8, 4, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy2DAsync(y, 16, x, 16, 8, 4, cudaMemcpyDefault, stream));
  OK(cudaMemcpyPeer(y, 0, x, 0, 64));
  OK(cudaMemcpyPeerAsync(y, 0, x, 0, 64, stream));
  bool ran = false;
  OK(cudaLaunchHostFunc(stream, on_host, &ran));
  OK(cudaEventRecord(end, stream));
  OK(cudaStreamWaitEvent(stream, start, cudaEventWaitDefault));
  OK(cudaEventSynchronize(end));
  EXPECT_TRUE(ran);
  OK(cudaEventQuery(end));
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, start, end));
  OK(cudaEventRecordWithFlags(end, stream, cudaEventRecordDefault));
  EXPECT_GE(ms, 0);
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamQuery(stream));

  cudaGraph_t graph = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaMemsetAsync(x, 2, 64, stream));
  OK(cudaMemcpyAsync(y, x, 64, cudaMemcpyDeviceToDevice, stream));
  OK(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  const cudaGraphNode_t* last = nullptr;
#if CUDART_VERSION >= 13000
  OK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &last, nullptr, &n));
#else
  OK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &last, &n));
#endif
  EXPECT_EQ(n, 1u);
  OK(cudaStreamEndCapture(stream, &graph));
  cudaGraphNode_t nodes[2];
  cudaGraphNode_t from[1];
  cudaGraphNode_t to[1];
  n = 2;
  OK(cudaGraphGetNodes(graph, nodes, &n));
  EXPECT_EQ(n, 2u);
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(nodes[1], &type));
  EXPECT_EQ(type, cudaGraphNodeTypeMemcpy);
  cudaMemsetParams fill = {};
  OK(cudaGraphMemsetNodeGetParams(nodes[0], &fill));
  EXPECT_EQ(fill.dst, x);
  EXPECT_EQ(fill.value, 2u);
  EXPECT_EQ(fill.width * fill.elementSize, 64u);
  EXPECT_EQ(fill.height, 1u);
  n = 1;
#if CUDART_VERSION >= 13000
  OK(cudaGraphGetEdges(graph, from, to, nullptr, &n));
#else
  OK(cudaGraphGetEdges(graph, from, to, &n));
#endif
  EXPECT_EQ(from[0], nodes[0]);
  EXPECT_EQ(to[0], nodes[1]);
  n = 2;
  OK(cudaGraphGetRootNodes(graph, nodes, &n));
  EXPECT_EQ(n, 1u);
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphInstantiate(&exec, graph, 0ULL));
  OK(cudaGraphUpload(exec, stream));
  cudaGraphExecUpdateResultInfo update;
  OK(cudaGraphExecUpdate(exec, graph, &update));
  EXPECT_EQ(update.result, cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaDeviceSynchronize());
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));

  // Kernels are tested in the C forms only: g++ has no __global__ with the toolkit's headers.
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1, 1, 1);
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = 0;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributePriority;
  attribute.val.priority = 0;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const void* no_kernel = nullptr;
  EXPECT_EQ(cudaLaunchKernelExC(&config, no_kernel, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernel(no_kernel, dim3(1), dim3(1), nullptr, 0, stream),
            cudaErrorInvalidDeviceFunction);
  cudaFuncAttributes function = {};
  EXPECT_NE(cudaFuncGetAttributes(&function, no_kernel), cudaSuccess);
  EXPECT_NE(cudaFuncSetAttribute(no_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1),
            cudaSuccess);
  EXPECT_NE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&i, no_kernel, 32, 0), cudaSuccess);
  EXPECT_NE(cudaGetLastError(), cudaSuccess);

  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  OK(cudaGetDriverEntryPointByVersion("cuModuleLoadData", &entry, 12000, cudaEnableDefault,
                                      &found));
#else
  OK(cudaGetDriverEntryPoint("cuModuleLoadData", &entry, cudaEnableDefault, &found));
#endif
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
  const auto load = reinterpret_cast<decltype(&cuModuleLoadData)>(entry);
  CUmodule module = nullptr;
  EXPECT_EQ(load(&module, "/no/such/image"), CUDA_ERROR_INVALID_IMAGE);
  static_assert(std::is_same_v<CUstream, cudaStream_t>);

  OK(cudaFreeAsync(y, stream));
  OK(cudaStreamDestroy(stream));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
  OK(cudaFree(x));
  OK(cudaFreeHost(pinned));
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
#undef OK
}

}  // namespace
