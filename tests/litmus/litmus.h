/* What the litmus programs share.  Each is a small program on the driver API that must end within
 * five seconds with the result that NVIDIA's driver gives natively.  The library is opened by name
 * (RGPU_LIBCUDA, else libcuda.so.1), so one binary runs in process, over the wire and on a GPU. */
#ifndef RGPU_LITMUS_H
#define RGPU_LITMUS_H

#define _GNU_SOURCE
#ifdef RGPU_VENDOR_HEADER
#include <cuda.h>
#else
#include "gen/cuda_abi.gen.h"
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls a driver function by its exported name and gives its CUresult. */
#define CU(name, ...) (((__typeof__(&name))litmus_symbol(#name))(__VA_ARGS__))
/* The same, and the result must be success. */
#define OK(name, ...) litmus_expect(CU(name, __VA_ARGS__), CUDA_SUCCESS, #name, __LINE__)
#define EXPECT(result, name, ...) litmus_expect(CU(name, __VA_ARGS__), result, #name, __LINE__)
#define REQUIRE(condition)                               \
  do {                                                   \
    if (!(condition)) litmus_fail(#condition, __LINE__); \
  } while (0)

static inline void litmus_fail(const char* what, int line) {
  fprintf(stderr, "line %d: not so: %s\n", line, what);
  _exit(1);
}

static inline void litmus_expect(CUresult got, CUresult wanted, const char* name, int line) {
  if (got == wanted) return;
  fprintf(stderr, "line %d: %s gave CUresult %d, expected %d\n", line, name, (int)got, (int)wanted);
  _exit(1);
}

static inline void* litmus_symbol(const char* name) {
  static void* library;
  const char* path = getenv("RGPU_LIBCUDA");
  if (!library) library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(1);
  }
  void* symbol = dlsym(library, name);
  if (!symbol) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(1);
  }
  return symbol;
}

static inline CUcontext litmus_context(void) {
  CUcontext context;
  OK(cuInit, 0);
  OK(cuDevicePrimaryCtxRetain, &context, 0);
  OK(cuCtxSetCurrent, context);
  return context;
}

/* add_one(counter): one atomic increment per thread.  copy_words(dst, src, n): grid-stride copy.
 * deep(out): 16 KiB of local memory per thread. */
static const char kKernels[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 counter) {\n"
    "  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [counter];\n"
    "  cvta.to.global.u64 %rd2, %rd1;\n"
    "  red.global.add.u32 [%rd2], 1;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry copy_words(.param .u64 dst, .param .u64 src, .param .u64 n) {\n"
    "  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<12>;\n"
    "  ld.param.u64 %rd1, [dst]; ld.param.u64 %rd2, [src]; ld.param.u64 %rd3, [n];\n"
    "  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;\n"
    "  mul.wide.u32 %rd4, %r1, %r2; cvt.u64.u32 %rd5, %r3; add.u64 %rd4, %rd4, %rd5;\n"
    "  mul.wide.u32 %rd6, %r4, %r2;\n"
    "LOOP:\n"
    "  setp.ge.u64 %p1, %rd4, %rd3;\n"
    "  @%p1 bra DONE;\n"
    "  shl.b64 %rd7, %rd4, 2;\n"
    "  add.u64 %rd8, %rd2, %rd7; add.u64 %rd9, %rd1, %rd7;\n"
    "  ld.global.u32 %r5, [%rd8];\n"
    "  st.global.u32 [%rd9], %r5;\n"
    "  add.u64 %rd4, %rd4, %rd6;\n"
    "  bra LOOP;\n"
    "DONE:\n"
    "  ret;\n"
    "}\n"
    ".visible .entry deep(.param .u64 out) {\n"
    "  .local .align 8 .b8 depot[16384];\n"
    "  .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd1, %rd1;\n"
    "  mov.u32 %r1, %tid.x;\n"
    "  mov.u64 %rd2, depot;\n"
    "  mul.wide.u32 %rd3, %r1, 8; and.b64 %rd3, %rd3, 16376; add.u64 %rd4, %rd2, %rd3;\n"
    "  st.local.u32 [%rd4], %r1;\n"
    "  ld.local.u32 %r2, [%rd4];\n"
    "  red.global.add.u32 [%rd1], %r2;\n"
    "  ret;\n"
    "}\n";

static inline CUfunction litmus_function(const char* name) {
  static CUmodule module;
  CUfunction function;
  if (!module) OK(cuModuleLoadData, &module, kKernels);
  OK(cuModuleGetFunction, &function, module, name);
  return function;
}

static inline void litmus_thread(pthread_t* thread, void* (*body)(void*), void* argument) {
  if (pthread_create(thread, NULL, body, argument) != 0) litmus_fail("pthread_create", __LINE__);
}

#endif
