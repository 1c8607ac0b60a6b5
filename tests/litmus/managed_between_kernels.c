/* A host function changes managed memory between two kernels of one stream, which are both queued
 * before it runs: it sees what the first kernel wrote, and the second kernel sees what it wrote. */
#include "litmus.h"

enum { WORDS = 1 << 15, ROUNDS = 20 };

static uint32_t *shared;
static uint32_t seen;

static void between(void *value) {
  seen = shared[WORDS - 1];
  for (int i = 0; i < WORDS; i += 1000) shared[i] = (uint32_t)(uintptr_t)value;
}

int main(void) {
  CUdeviceptr address, scratch;
  CUstream stream;
  litmus_context();
  CUfunction copy = litmus_function("copy_words");
  OK(cuMemAllocManaged, &address, WORDS * 4, CU_MEM_ATTACH_GLOBAL);
  OK(cuMemAlloc_v2, &scratch, WORDS * 4);
  shared = (uint32_t *)address;
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  uint64_t words = WORDS;
  void *in[] = {&scratch, &address, &words};
  void *out[] = {&address, &scratch, &words};
  for (uint32_t round = 1; round <= ROUNDS; round++) {
    OK(cuMemsetD32Async, scratch, round, WORDS, stream);
    OK(cuLaunchKernel, copy, 4, 1, 1, 128, 1, 1, 0, stream, out, NULL);
    OK(cuLaunchHostFunc, stream, between, (void *)(uintptr_t)(round + 1000));
    OK(cuLaunchKernel, copy, 4, 1, 1, 128, 1, 1, 0, stream, in, NULL);
    OK(cuMemsetD32Async, address, 0, WORDS, stream);
    OK(cuLaunchKernel, copy, 4, 1, 1, 128, 1, 1, 0, stream, out, NULL);
    OK(cuStreamSynchronize, stream);
    REQUIRE(seen == round);
    for (uint32_t i = 0; i < WORDS; i++) {
      REQUIRE(shared[i] == (i % 1000 == 0 ? round + 1000 : round));
    }
    for (uint32_t i = 0; i < WORDS; i += 7) shared[i] = 0;
  }
  OK(cuMemFree_v2, address);
  puts("managed_between_kernels ok");
  return 0;
}
