/* A: a wait in s1, then cuMemFree, which the driver may make wait for s1.  B: the write in s2 that ends
 * the wait.  The free may block A, and only A. */
#include "litmus.h"

static CUcontext context;
static CUstream s2;
static CUdeviceptr flag;
static atomic_int waiting;

static void *writer(void *unused) {
  OK(cuCtxSetCurrent, context);
  while (!atomic_load(&waiting)) sched_yield();
  OK(cuStreamWriteValue32_v2, s2, flag, 1, 0);
  OK(cuStreamSynchronize, s2);
  return unused;
}

int main(void) {
  CUstream s1;
  CUdeviceptr victim;
  pthread_t thread;
  context = litmus_context();
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemAlloc_v2, &victim, 1 << 20);
  OK(cuMemsetD32_v2, flag, 0, 1);
  OK(cuCtxSynchronize);
  OK(cuStreamCreate, &s1, CU_STREAM_NON_BLOCKING);
  OK(cuStreamCreate, &s2, CU_STREAM_NON_BLOCKING);
  litmus_thread(&thread, writer, NULL);
  OK(cuStreamWaitValue32_v2, s1, flag, 1, CU_STREAM_WAIT_VALUE_GEQ);
  atomic_store(&waiting, 1);
  OK(cuMemFree_v2, victim);
  OK(cuStreamSynchronize, s1);
  pthread_join(thread, NULL);
  puts("blocking_free ok");
  return 0;
}
