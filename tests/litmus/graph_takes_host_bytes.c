/* A graph reads host memory when it runs, each time anew: a captured host function fills a pinned buffer, and the
 * program fills a pageable one between launches.  The copy back and the host function behind it see each launch's
 * bytes. */
#include "litmus.h"

enum { BYTES = 300000, ROUNDS = 20 };

static unsigned char *pinned, *back;
static atomic_int seen;

static void fill(void *unused) {
  (void)unused;
  memset(pinned, 100 + atomic_load(&seen), BYTES);
}

static void look(void *unused) {
  (void)unused;
  int round = atomic_load(&seen);
  REQUIRE(back[0] == 100 + round && back[BYTES / 2] == 100 + round && back[BYTES - 1] == 100 + round);
  atomic_store(&seen, round + 1);
}

int main(void) {
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr from_pinned, from_heap;
  static unsigned char heap[BYTES], copy[BYTES];
  litmus_context();
  OK(cuMemAlloc_v2, &from_pinned, BYTES);
  OK(cuMemAlloc_v2, &from_heap, BYTES);
  OK(cuMemHostAlloc, (void **)&pinned, BYTES, 0);
  OK(cuMemHostAlloc, (void **)&back, BYTES, 0);
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuLaunchHostFunc, stream, fill, NULL);
  OK(cuMemcpyHtoDAsync_v2, from_pinned, pinned, BYTES, stream);
  OK(cuMemcpyHtoDAsync_v2, from_heap, heap, BYTES, stream);
  OK(cuMemcpyDtoHAsync_v2, back, from_pinned, BYTES, stream);
  OK(cuLaunchHostFunc, stream, look, NULL);
  OK(cuStreamEndCapture, stream, &graph);
  REQUIRE(atomic_load(&seen) == 0);
  OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
  OK(cuGraphDestroy, graph);
  for (int round = 0; round < ROUNDS; round++) {
    memset(heap, 50 + round, BYTES);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    REQUIRE(atomic_load(&seen) == round + 1);
    OK(cuMemcpyDtoH_v2, copy, from_heap, BYTES);
    REQUIRE(copy[0] == 50 + round && copy[BYTES / 2] == 50 + round && copy[BYTES - 1] == 50 + round);
  }
  /* Launches that nobody waits for run one after the other. */
  for (int round = 0; round < ROUNDS; round++) OK(cuGraphLaunch, exec, stream);
  OK(cuStreamSynchronize, stream);
  REQUIRE(atomic_load(&seen) == 2 * ROUNDS);
  OK(cuGraphExecDestroy, exec);
  puts("graph_takes_host_bytes ok");
  return 0;
}
