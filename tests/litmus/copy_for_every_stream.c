/* A synchronous copy to the device, then a launch on a stream that does not wait for the default one: the kernel
 * must see the bytes. */
#include "litmus.h"

enum { WORDS = 16 << 20 };

int main(void) {
  CUstream stream;
  CUdeviceptr source, target;
  uint64_t n = WORDS;
  litmus_context();
  CUfunction copy_words = litmus_function("copy_words");
  unsigned *host = malloc(WORDS * 4u), *back = malloc(WORDS * 4u);
  OK(cuMemAlloc_v2, &source, WORDS * 4u);
  OK(cuMemAlloc_v2, &target, WORDS * 4u);
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; i < WORDS; i++) host[i] = i * 2654435761u + round;
    OK(cuMemcpyHtoD_v2, source, host, WORDS * 4u);
    void *arguments[] = {&target, &source, &n};
    OK(cuLaunchKernel, copy_words, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
    OK(cuStreamSynchronize, stream);
    OK(cuMemcpyDtoH_v2, back, target, WORDS * 4u);
    REQUIRE(memcmp(host, back, WORDS * 4u) == 0);
  }
  puts("copy_for_every_stream ok");
  return 0;
}
