/* The driver API as the benchmarks use it, looked up in the library that is loaded as libcuda.so.1.
 */
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long ptr;

#define DRIVER_CALLS(X)                                                                        \
  X(cuInit, "cuInit", unsigned)                                                                \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", void**, int)                         \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", void*)                                                 \
  X(cuMemGetInfo, "cuMemGetInfo_v2", size_t*, size_t*)                                         \
  X(cuMemAlloc, "cuMemAlloc_v2", ptr*, size_t)                                                 \
  X(cuMemFree, "cuMemFree_v2", ptr)                                                            \
  X(cuMemAllocHost, "cuMemAllocHost_v2", void**, size_t)                                       \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", ptr, const void*, size_t)                                 \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", void*, ptr, size_t)                                       \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", ptr, const void*, size_t, void*)                \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", ptr, ptr, size_t, void*)                        \
  X(cuMemsetD8Async, "cuMemsetD8Async", ptr, unsigned char, size_t, void*)                     \
  X(cuModuleLoadData, "cuModuleLoadData", void**, const void*)                                 \
  X(cuModuleGetFunction, "cuModuleGetFunction", void**, void*, const char*)                    \
  X(cuLaunchKernel, "cuLaunchKernel", void*, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, unsigned, void*, void**, void**)                                                 \
  X(cuStreamCreate, "cuStreamCreate", void**, unsigned)                                        \
  X(cuStreamSynchronize, "cuStreamSynchronize", void*)                                         \
  X(cuEventCreate, "cuEventCreate", void**, unsigned)                                          \
  X(cuEventRecord, "cuEventRecord", void*, void*)                                              \
  X(cuEventSynchronize, "cuEventSynchronize", void*)

#define DECLARE(name, symbol, ...) static int (*name)(__VA_ARGS__) __attribute__((unused));
DRIVER_CALLS(DECLARE)

static inline void check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s failed with CUresult %d\n", what, result);
  exit(1);
}
#define CHECK(name, ...) check(name(__VA_ARGS__), #name)

static inline void driver_load(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) fprintf(stderr, "%s\n", dlerror()), exit(1);
#define FIND(name, symbol, ...)            \
  *(void**)&name = dlsym(library, symbol); \
  if (!name) fprintf(stderr, "no symbol %s\n", symbol), exit(1);
  DRIVER_CALLS(FIND)
}

static inline void driver_open(void) {
  void* context;
  driver_load();
  CHECK(cuInit, 0);
  CHECK(cuDevicePrimaryCtxRetain, &context, 0);
  CHECK(cuCtxSetCurrent, context);
}
