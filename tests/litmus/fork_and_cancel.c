/* fork after cuInit, and cancellation of a thread that waits.  The child's calls say "not initialised", its exit
 * does not end the parent's session, and a cancelled wait leaves the library usable. */
#include "litmus.h"

#include <sched.h>
#include <sys/wait.h>

static CUcontext context;
static CUstream stream;
static atomic_int waiting;

static void *waiter(void *unused) {
  OK(cuCtxSetCurrent, context);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
  atomic_store(&waiting, 1);
  CU(cuStreamSynchronize, stream);
  pthread_testcancel();
  return unused;
}

static void child_is_not_initialised(void) {
  size_t free_bytes, total;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    CUresult result = CU(cuMemGetInfo_v2, &free_bytes, &total);
    if (result != CUDA_ERROR_NOT_INITIALIZED) _exit(2);
    exit(0);
  }
  int status;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(cuMemGetInfo_v2, &free_bytes, &total);
}

int main(void) {
  CUdeviceptr flag;
  pthread_t thread;
  context = litmus_context();
  child_is_not_initialised();
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemsetD32_v2, flag, 0, 1);
  OK(cuCtxSynchronize);
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuStreamWaitValue32_v2, stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ);
  litmus_thread(&thread, waiter, NULL);
  while (!atomic_load(&waiting)) sched_yield();
  pthread_cancel(thread);
  unsigned one = 1;
  OK(cuMemcpyHtoD_v2, flag, &one, sizeof one);
  OK(cuStreamSynchronize, stream);
  pthread_join(thread, NULL);
  child_is_not_initialised();
  OK(cuCtxSynchronize);
  puts("fork_and_cancel ok");
  return 0;
}
