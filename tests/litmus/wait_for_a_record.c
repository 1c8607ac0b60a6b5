/* A waits for an event; B records it again and again.  A's wait is bound to the record it found. */
#include "litmus.h"

static CUcontext context;
static CUevent event;
static CUstream stream;
static CUdeviceptr counter;
static atomic_int waited, recorded;

static void *recorder(void *unused) {
  OK(cuCtxSetCurrent, context);
  CUfunction add_one = litmus_function("add_one");
  void *arguments[] = {&counter};
  while (!atomic_load(&waited)) {
    OK(cuLaunchKernel, add_one, 64, 1, 1, 64, 1, 1, 0, stream, arguments, NULL);
    OK(cuEventRecord, event, stream);
    atomic_fetch_add(&recorded, 1);
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  context = litmus_context();
  OK(cuMemAlloc_v2, &counter, 4);
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuEventCreate, &event, CU_EVENT_DEFAULT);
  OK(cuEventRecord, event, stream);
  litmus_function("add_one");
  litmus_thread(&thread, recorder, NULL);
  while (atomic_load(&recorded) < 3) sched_yield();
  for (int i = 0; i < 3; i++) OK(cuEventSynchronize, event);
  atomic_store(&waited, 1);
  pthread_join(thread, NULL);
  OK(cuStreamSynchronize, stream);
  puts("wait_for_a_record ok");
  return 0;
}
