// A CUDA driver without a GPU (libcuda.so.1): cuDNN compiles for a described GPU only if it can
// open a driver and load the compiled code. Loading does nothing here.
extern "C" {

static int there;

#define HANDLE(name)        \
  int name(void** handle) { \
    *handle = &there;       \
    return 0;               \
  }
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryLoadFromFile)
HANDLE(cuLibraryGetKernel)
HANDLE(cuModuleGetFunction)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleLoadDataEx)
HANDLE(cuModuleLoadFatBinary)

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

// Every function that needs a GPU returns CUDA_ERROR_NO_DEVICE.
#define NO_DEVICE(name) \
  int name() { return 100; }
NO_DEVICE(cuInit)
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetDevice)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetAttribute)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuDevicePrimaryCtxRelease)
NO_DEVICE(cuDevicePrimaryCtxReset)
NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuFuncGetAttribute)
NO_DEVICE(cuGetErrorName)
NO_DEVICE(cuGetErrorString)
NO_DEVICE(cuKernelGetAttribute)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryUnload)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkAddData_v2)
NO_DEVICE(cuLinkAddFile_v2)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkCreate_v2)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuMemcpyDtoH_v2)
NO_DEVICE(cuModuleGetGlobal_v2)
NO_DEVICE(cuModuleUnload)
NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
NO_DEVICE(cuStreamSynchronize)
NO_DEVICE(cuTensorMapEncodeTiled)

// Functions that a plan calls before its kernels run.
#define ACCEPT(name) \
  int name() { return 0; }
ACCEPT(cuFuncSetAttribute)
ACCEPT(cuKernelSetAttribute)

}  // extern "C"
