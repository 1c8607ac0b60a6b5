/* Two threads, each on its per-thread default stream: one waits for the value that the other writes. */
#include "litmus.h"

static CUcontext context;
static CUdeviceptr flag;
static atomic_int waiting;

static void *writer(void *unused) {
  OK(cuCtxSetCurrent, context);
  while (!atomic_load(&waiting)) sched_yield();
  OK(cuStreamWriteValue32_v2, CU_STREAM_PER_THREAD, flag, 7, 0);
  OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
  return unused;
}

int main(void) {
  pthread_t thread;
  context = litmus_context();
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemsetD32_v2, flag, 0, 1);
  OK(cuCtxSynchronize);
  litmus_thread(&thread, writer, NULL);
  OK(cuStreamWaitValue32_v2, CU_STREAM_PER_THREAD, flag, 7, CU_STREAM_WAIT_VALUE_EQ);
  atomic_store(&waiting, 1);
  OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
  pthread_join(thread, NULL);
  puts("thread_streams ok");
  return 0;
}
