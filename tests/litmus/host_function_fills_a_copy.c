/* A host function fills a pinned buffer, and the asynchronous copy behind it takes what the function wrote: the
 * bytes are read when the stream has come to the copy, not at the call. */
#include "litmus.h"

enum { BYTES = 1 << 20 };

static unsigned char *pinned;

static void fill(void *value) { memset(pinned, (int)(intptr_t)value, BYTES); }

int main(void) {
  CUstream stream;
  CUdeviceptr target;
  static unsigned char back[BYTES];
  litmus_context();
  OK(cuMemAlloc_v2, &target, BYTES);
  OK(cuMemHostAlloc, (void **)&pinned, BYTES, 0);
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (int round = 1; round <= 50; round++) {
    memset(pinned, 0, BYTES);
    OK(cuLaunchHostFunc, stream, fill, (void *)(intptr_t)round);
    OK(cuMemcpyHtoDAsync_v2, target, pinned, BYTES, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuMemcpyDtoH_v2, back, target, BYTES);
    REQUIRE(back[0] == round && back[BYTES / 2] == round && back[BYTES - 1] == round);
  }
  puts("host_function_fills_a_copy ok");
  return 0;
}
