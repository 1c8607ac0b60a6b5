/* A launch fails for want of local memory on thread A; thread B allocates; then A allocates.  B
 * succeeds; A gets the launch's own error, at the launch or by its next call, and nothing is leaked.
 * Without a memory quota the launch may simply succeed. */
#include "litmus.h"

static CUcontext context;
static CUdeviceptr others;

static void *other(void *unused) {
  OK(cuCtxSetCurrent, context);
  OK(cuMemAlloc_v2, &others, 1 << 20);
  return unused;
}

int main(void) {
  pthread_t thread;
  CUdeviceptr out, mine = 0;
  size_t before, after, total;
  context = litmus_context();
  OK(cuMemAlloc_v2, &out, 4);
  CUfunction deep = litmus_function("deep");
  OK(cuCtxSynchronize);
  OK(cuMemGetInfo_v2, &before, &total);
  void *arguments[] = {&out};
  CUresult launch = CU(cuLaunchKernel, deep, 1, 1, 1, 1024, 1, 1, 0, NULL, arguments, NULL);
  litmus_thread(&thread, other, NULL);
  pthread_join(thread, NULL);
  CUresult next = CU(cuMemAlloc_v2, &mine, 1 << 20);
  if (launch == CUDA_SUCCESS && next == CUDA_SUCCESS) {
    OK(cuCtxSynchronize);
    puts("deferred_error ok (there was memory enough)");
    return 0;
  }
  REQUIRE(launch == CUDA_ERROR_OUT_OF_MEMORY || next == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE((launch == CUDA_SUCCESS) == (mine == 0));
  OK(cuCtxSynchronize);
  if (mine) OK(cuMemFree_v2, mine);
  OK(cuMemFree_v2, others);
  OK(cuCtxSynchronize);
  OK(cuMemGetInfo_v2, &after, &total);
  REQUIRE(after == before);
  puts("deferred_error ok");
  return 0;
}
