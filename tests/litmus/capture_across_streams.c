/* A capture that forks into other streams, from several threads, and joins again.  Each thread's graph counts
 * its own counters, also when all graphs are launched at once into streams that wait for each other. */
#include "litmus.h"

enum { THREADS = 3, BRANCHES = 3, LAUNCHES = 30 };

static CUcontext context;
static CUfunction add_one;
static pthread_barrier_t all;

struct part {
  CUdeviceptr counters[BRANCHES];
  CUgraphExec exec;
  CUstream stream;
};
static struct part parts[THREADS];

static void count(CUdeviceptr *counter, CUstream stream) {
  void *arguments[] = {counter};
  OK(cuLaunchKernel, add_one, 1, 1, 1, 4, 1, 1, 0, stream, arguments, NULL);
}

static void *capture(void *argument) {
  struct part *part = argument;
  CUstream branch[BRANCHES];
  CUevent forked, joined[BRANCHES];
  CUgraph graph, found;
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  size_t nodes = 0;
  OK(cuCtxSetCurrent, context);
  OK(cuEventCreate, &forked, CU_EVENT_DISABLE_TIMING);
  for (int i = 0; i < BRANCHES; i++) {
    OK(cuStreamCreate, &branch[i], CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &joined[i], CU_EVENT_DISABLE_TIMING);
  }
  pthread_barrier_wait(&all);
  OK(cuStreamBeginCapture_v2, part->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  count(&part->counters[0], part->stream);
  OK(cuEventRecord, forked, part->stream);
  for (int i = 1; i < BRANCHES; i++) {
    OK(cuStreamWaitEvent, branch[i], forked, 0);
    count(&part->counters[i], branch[i]);
    count(&part->counters[i], branch[i]);
    OK(cuStreamGetCaptureInfo_v2, branch[i], &status, &id, &found, NULL, &nodes);
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && nodes == 1);
    OK(cuEventRecord, joined[i], branch[i]);
    OK(cuStreamWaitEvent, part->stream, joined[i], 0);
  }
  count(&part->counters[0], part->stream);
  OK(cuStreamEndCapture, part->stream, &graph);
  OK(cuGraphGetNodes, graph, NULL, &nodes);
  REQUIRE(nodes == 2 + 2 * (BRANCHES - 1));
  OK(cuGraphInstantiateWithFlags, &part->exec, graph, 0);
  OK(cuGraphDestroy, graph);
  pthread_barrier_wait(&all);
  for (int i = 0; i < LAUNCHES; i++) OK(cuGraphLaunch, part->exec, part->stream);
  OK(cuStreamSynchronize, part->stream);
  return NULL;
}

static unsigned number(CUdeviceptr address) {
  unsigned value;
  OK(cuMemcpyDtoH_v2, &value, address, 4);
  return value;
}

int main(void) {
  pthread_t threads[THREADS];
  CUevent event;
  context = litmus_context();
  add_one = litmus_function("add_one");
  pthread_barrier_init(&all, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    OK(cuStreamCreate, &parts[i].stream, CU_STREAM_NON_BLOCKING);
    for (int j = 0; j < BRANCHES; j++) {
      OK(cuMemAlloc_v2, &parts[i].counters[j], 4);
      OK(cuMemsetD32_v2, parts[i].counters[j], 0, 1);
    }
  }
  OK(cuCtxSynchronize); /* these streams do not wait for sets in the default stream */
  for (int i = 0; i < THREADS; i++) litmus_thread(&threads[i], capture, &parts[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    for (int j = 0; j < BRANCHES; j++) REQUIRE(number(parts[i].counters[j]) == 2 * 4 * LAUNCHES);
  }
  /* One graph in two streams: its launches come one after the other. */
  OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  for (int i = 0; i < LAUNCHES; i++) OK(cuGraphLaunch, parts[0].exec, parts[i % 2].stream);
  OK(cuEventRecord, event, parts[1].stream);
  OK(cuStreamWaitEvent, parts[0].stream, event, 0);
  OK(cuStreamSynchronize, parts[0].stream);
  REQUIRE(number(parts[0].counters[0]) == 4 * 4 * LAUNCHES);
  puts("capture_across_streams ok");
  return 0;
}
