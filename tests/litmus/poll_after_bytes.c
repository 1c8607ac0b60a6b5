/* An async copy to pinned memory behind a wait; the write that ends the wait comes from another stream; then
 * the event is polled.  When the poll says "complete" the bytes are there. */
#include "litmus.h"

enum { BYTES = 8 << 20 };

int main(void) {
  CUstream s1, s2;
  CUevent event;
  CUdeviceptr flag, source;
  unsigned char *pinned;
  litmus_context();
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemAlloc_v2, &source, BYTES);
  OK(cuMemHostAlloc, (void **)&pinned, BYTES, 0);
  OK(cuStreamCreate, &s1, CU_STREAM_NON_BLOCKING);
  OK(cuStreamCreate, &s2, CU_STREAM_NON_BLOCKING);
  OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  for (unsigned char round = 1; round <= 10; round++) {
    memset(pinned, 0, BYTES);
    OK(cuMemsetD32_v2, flag, 0, 1);
    OK(cuMemsetD8_v2, source, round, BYTES);
    OK(cuCtxSynchronize);
    OK(cuStreamWaitValue32_v2, s1, flag, 1, CU_STREAM_WAIT_VALUE_GEQ);
    OK(cuMemcpyDtoHAsync_v2, pinned, source, BYTES, s1);
    OK(cuEventRecord, event, s1);
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    REQUIRE(pinned[0] == 0);
    OK(cuStreamWriteValue32_v2, s2, flag, 1, 0);
    CUresult result;
    while ((result = CU(cuEventQuery, event)) == CUDA_ERROR_NOT_READY) sched_yield();
    REQUIRE(result == CUDA_SUCCESS);
    REQUIRE(pinned[0] == round && pinned[BYTES / 2] == round && pinned[BYTES - 1] == round);
  }
  puts("poll_after_bytes ok");
  return 0;
}
