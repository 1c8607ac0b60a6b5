/* A: 3,000 launches behind a wait.  B: the synchronous copy that ends the wait.  A may block when the queue
 * is full; B must get through. */
#include "litmus.h"

enum { LAUNCHES = 3000 };
static CUcontext context;
static CUdeviceptr flag;
static atomic_int issued;

static void *writer(void *unused) {
  unsigned one = 1;
  OK(cuCtxSetCurrent, context);
  while (atomic_load(&issued) < 100) sched_yield();
  OK(cuMemcpyHtoD_v2, flag, &one, sizeof one);
  return unused;
}

int main(void) {
  CUstream stream;
  CUdeviceptr counter;
  unsigned total = 0;
  pthread_t thread;
  context = litmus_context();
  CUfunction add_one = litmus_function("add_one");
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemAlloc_v2, &counter, 4);
  OK(cuMemsetD32_v2, flag, 0, 1);
  OK(cuMemsetD32_v2, counter, 0, 1);
  OK(cuCtxSynchronize);
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  litmus_thread(&thread, writer, NULL);
  OK(cuStreamWaitValue32_v2, stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ);
  void *arguments[] = {&counter};
  for (int i = 0; i < LAUNCHES; i++) {
    OK(cuLaunchKernel, add_one, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
    atomic_fetch_add(&issued, 1);
  }
  OK(cuStreamSynchronize, stream);
  pthread_join(thread, NULL);
  OK(cuMemcpyDtoH_v2, &total, counter, sizeof total);
  REQUIRE(total == LAUNCHES);
  puts("full_queue ok");
  return 0;
}
