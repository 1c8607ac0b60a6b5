/* cuMemcpy decides its direction by the addresses alone.  Linked without PIE, so that the heap lies low. */
#include "litmus.h"

int main(void) {
  CUdeviceptr device;
  litmus_context();
  OK(cuMemAlloc_v2, &device, 4096);
  for (int i = 0; i < 200; i++) {
    char *from = malloc(64), *to = malloc(64), *local = malloc(64);
    memset(from, i, 64);
    OK(cuMemcpy, device + (CUdeviceptr)(i % 60) * 64, (CUdeviceptr)(uintptr_t)from, 64);
    OK(cuMemcpy, (CUdeviceptr)(uintptr_t)to, device + (CUdeviceptr)(i % 60) * 64, 64);
    OK(cuMemcpy, (CUdeviceptr)(uintptr_t)local, (CUdeviceptr)(uintptr_t)to, 64);
    REQUIRE(memcmp(from, to, 64) == 0 && memcmp(from, local, 64) == 0);
    free(from), free(to), free(local);
  }
  puts("low_heap ok");
  return 0;
}
