/* A host function sets a flag, and the main thread spins on it without any CUDA call: something other than the
 * program's calls must read what the server sends. */
#include "litmus.h"

static atomic_int flag;

static void set(void *value) { atomic_store(&flag, (int)(intptr_t)value); }

int main(void) {
  CUstream stream;
  litmus_context();
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (int round = 1; round <= 100; round++) {
    OK(cuLaunchHostFunc, stream, set, (void *)(intptr_t)round);
    while (atomic_load(&flag) != round) sched_yield();
  }
  OK(cuStreamSynchronize, stream);
  puts("host_function_ends_a_spin ok");
  return 0;
}
