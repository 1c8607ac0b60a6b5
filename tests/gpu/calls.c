/* What calls cost: one line "name value unit" each, for `make gpu-check`, which runs it in process and over the
 * wire and prints both. */
#include "litmus.h"

#include <time.h>

enum { CALLS = 2000, LAUNCHES = 1000, BYTES = 64 << 20, COPIES = 10 };

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void copies(const char *name, int to_device, CUdeviceptr device, void *host) {
  double begin = now_us();
  for (int i = 0; i < COPIES; i++) {
    if (to_device) {
      OK(cuMemcpyHtoD_v2, device, host, BYTES);
    } else {
      OK(cuMemcpyDtoH_v2, host, device, BYTES);
    }
  }
  printf("%s %.2f GB/s\n", name, (double)BYTES * COPIES / (now_us() - begin) / 1e3);
}

int main(void) {
  CUdeviceptr counter, buffer;
  unsigned total = 0;
  double begin = now_us();
  litmus_context();
  printf("open %.0f us\n", now_us() - begin);
  CUfunction add_one = litmus_function("add_one");
  void *arguments[] = {&counter};
  OK(cuMemAlloc_v2, &counter, 4);
  OK(cuMemAlloc_v2, &buffer, BYTES);
  OK(cuMemsetD32_v2, counter, 0, 1);
  OK(cuLaunchKernel, add_one, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
  OK(cuCtxSynchronize);
  begin = now_us();
  for (int i = 0; i < CALLS; i++) OK(cuMemcpyDtoH_v2, &total, counter, 4);
  printf("synchronous_call %.2f us\n", (now_us() - begin) / CALLS);
  begin = now_us();
  for (int i = 0; i < LAUNCHES; i++) OK(cuLaunchKernel, add_one, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
  printf("launch_issue %.2f us\n", (now_us() - begin) / LAUNCHES);
  OK(cuCtxSynchronize);
  printf("launch_done %.2f us\n", (now_us() - begin) / LAUNCHES);
  begin = now_us();
  for (int i = 0; i < LAUNCHES; i++) {
    CUdeviceptr memory;
    OK(cuMemAlloc_v2, &memory, 1 << 20);
    OK(cuMemFree_v2, memory);
  }
  printf("alloc_free %.2f us\n", (now_us() - begin) / LAUNCHES);
  char *host = malloc(BYTES);
  memset(host, 1, BYTES);
  copies("to_device", 1, buffer, host);
  copies("to_host", 0, buffer, host);
  return 0;
}
