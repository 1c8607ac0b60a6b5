/* A kernel with 16 KiB of local memory per thread: the memory for all resident threads is charged, or the
 * launch refused.  It is never free of charge.  LITMUS_MUST_REFUSE=1: the lease is too small for it. */
#include "litmus.h"

int main(void) {
  CUdeviceptr out;
  unsigned sum = 0;
  size_t before, after, total;
  litmus_context();
  OK(cuMemAlloc_v2, &out, 4);
  OK(cuMemsetD32_v2, out, 0, 1);
  CUfunction deep = litmus_function("deep");
  OK(cuCtxSynchronize);
  OK(cuMemGetInfo_v2, &before, &total);
  void *arguments[] = {&out};
  CUresult result = CU(cuLaunchKernel, deep, 2, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
  if (result == CUDA_SUCCESS) result = CU(cuCtxSynchronize);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    puts("local_memory_charged ok (refused)");
    return 0;
  }
  REQUIRE(result == CUDA_SUCCESS);
  REQUIRE(!getenv("LITMUS_MUST_REFUSE"));
  OK(cuMemGetInfo_v2, &after, &total);
  REQUIRE(after < before);
  OK(cuMemcpyDtoH_v2, &sum, out, sizeof sum);
  REQUIRE(sum == 2 * (255 * 256 / 2));
  puts("local_memory_charged ok (charged)");
  return 0;
}
