/* The host fills one half of mapped memory while a kernel writes the other half, and learns by an
 * event alone that the kernel is complete. The halves meet inside a page. */
#include "litmus.h"

enum { HALF = 10000, ROUNDS = 30 };

int main(void) {
  uint32_t *host;
  CUdeviceptr device, flag, source;
  CUstream busy, go;
  CUevent done;
  litmus_context();
  int can = 0;
  OK(cuDeviceGetAttribute, &can, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0);
  REQUIRE(can == 1);
  CUfunction copy = litmus_function("copy_words");
  OK(cuMemHostAlloc, (void **)&host, 2 * HALF * 4, CU_MEMHOSTALLOC_DEVICEMAP);
  OK(cuMemHostGetDevicePointer_v2, &device, host, 0);
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemAlloc_v2, &source, HALF * 4);
  OK(cuMemsetD32_v2, flag, 0, 1);
  OK(cuCtxSynchronize);
  OK(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
  OK(cuStreamCreate, &go, CU_STREAM_NON_BLOCKING);
  OK(cuEventCreate, &done, CU_EVENT_DISABLE_TIMING);
  memset(host, 0, 2 * HALF * 4);
  /* A driver may load a kernel with its first launch, and wait for all streams meanwhile. */
  uint64_t none = 0;
  void *nothing[] = {&device, &source, &none};
  OK(cuLaunchKernel, copy, 1, 1, 1, 32, 1, 1, 0, busy, nothing, NULL);
  OK(cuCtxSynchronize);
  for (uint32_t round = 1; round <= ROUNDS; round++) {
    /* The kernel copies the host's half of the round before into its own. */
    const uint32_t mine = round % 2 * HALF, its = HALF - mine;
    CUdeviceptr to = device + its * 4;
    uint64_t words = HALF;
    void *params[] = {&to, &source, &words};
    OK(cuMemsetD32Async, source, round, HALF, busy);
    OK(cuStreamWaitValue32_v2, busy, flag, round, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuLaunchKernel, copy, 2, 1, 1, 64, 1, 1, 0, busy, params, NULL);
    for (uint32_t i = 0; i < HALF; i++) host[mine + i] = round * 100000 + i;
    OK(cuStreamWriteValue32_v2, go, flag, round, 0);
    OK(cuEventRecord, done, busy);
    OK(cuEventSynchronize, done);
    for (uint32_t i = 0; i < HALF; i++) {
      REQUIRE(host[mine + i] == round * 100000 + i);
      REQUIRE(host[its + i] == round);
    }
    OK(cuMemcpyDtoD_v2, source, device + mine * 4, HALF * 4);
    OK(cuCtxSynchronize);
  }
  OK(cuMemFreeHost, host);
  puts("mapped_two_buffers ok");
  return 0;
}
