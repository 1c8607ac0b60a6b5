/* Two processes of one lease share memory and events.  The memory is exported while kernels write
 * it; then the processes take turns on it, ordered by events alone. */
#include "litmus.h"

#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 40, LAUNCHES = 30, THREADS = 64 * 64, WORDS = 1 << 18 };

struct offer {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};

static CUstream stream;
static CUevent own, other;
static CUdeviceptr counter;

static void tell(int out, const void *what, size_t bytes) {
  REQUIRE(write(out, what, bytes) == (ssize_t)bytes);
}

static void hear(int in, void *what, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    ssize_t more = read(in, (char *)what + got, bytes - got);
    REQUIRE(more > 0);
    got += more;
  }
}

static void begin(void) {
  litmus_context();
  litmus_function("add_one");
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate, &own, CU_EVENT_INTERPROCESS);
  OK(cuEventCreate, &own, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
}

static void add(void) {
  void *arguments[] = {&counter};
  OK(cuLaunchKernel, litmus_function("add_one"), 64, 1, 1, 64, 1, 1, 0, stream, arguments, NULL);
}

/* Waits for the other's work by its event, adds, records. */
static void turn(int in, int out) {
  char token;
  hear(in, &token, 1);
  OK(cuStreamWaitEvent, stream, other, 0);
  add();
  OK(cuEventRecord, own, stream);
  tell(out, "x", 1);
}

static void importer(int in, int out) {
  struct offer offer;
  CUipcEventHandle mine;
  CUdeviceptr same, copy;
  char token;
  begin();
  hear(in, &offer, sizeof offer);
  OK(cuIpcOpenMemHandle_v2, &counter, offer.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  OK(cuIpcOpenMemHandle_v2, &same, offer.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  REQUIRE(same == counter);
  OK(cuIpcOpenEventHandle, &other, offer.event);
  OK(cuIpcGetEventHandle, &mine, own);
  tell(out, &mine, sizeof mine);
  for (int i = 0; i < ROUNDS; i++) turn(in, out);
  OK(cuStreamSynchronize, stream);
  /* A write that the other one reads as soon as the call has returned. */
  hear(in, &token, 1);
  unsigned words[1024];
  for (int i = 0; i < 1024; i++) words[i] = 7 * i;
  OK(cuMemcpyHtoD_v2, counter + 4096, words, sizeof words);
  tell(out, "x", 1);
  hear(in, &token, 1);
  OK(cuIpcCloseMemHandle, counter);
  OK(cuMemAlloc_v2, &copy, 4096);
  OK(cuMemcpyDtoD_v2, copy, counter, 4096); /* still open once */
  OK(cuIpcCloseMemHandle, counter);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle, counter);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, counter);
  OK(cuEventDestroy_v2, other);
  tell(out, "x", 1);
}

static void exporter(int in, int out) {
  struct offer offer;
  CUipcEventHandle theirs;
  unsigned count = 1, words[1024];
  begin();
  OK(cuMemAlloc_v2, &counter, WORDS * sizeof(unsigned));
  OK(cuMemsetD32_v2, counter, 0, WORDS);
  OK(cuMemcpyHtoD_v2, counter, &count, sizeof count);
  for (int i = 0; i < LAUNCHES; i++) add();
  OK(cuIpcGetMemHandle, &offer.memory, counter);
  for (int i = 0; i < LAUNCHES; i++) add();
  OK(cuIpcGetEventHandle, &offer.event, own);
  OK(cuEventRecord, own, stream);
  tell(out, &offer, sizeof offer);
  hear(in, &theirs, sizeof theirs);
  OK(cuIpcOpenEventHandle, &other, theirs);
  tell(out, "x", 1);
  for (int i = 0; i < ROUNDS - 1; i++) turn(in, out);
  hear(in, words, 1);
  OK(cuEventSynchronize, other);
  OK(cuEventQuery, other);
  OK(cuMemcpyDtoH_v2, &count, counter, sizeof count);
  REQUIRE(count == 1 + (2 * LAUNCHES + 2 * ROUNDS - 1) * THREADS);
  tell(out, "x", 1);
  hear(in, words, 1);
  OK(cuMemcpyDtoH_v2, words, counter + 4096, sizeof words);
  for (int i = 0; i < 1024; i++) REQUIRE(words[i] == 7u * i);
  tell(out, "x", 1);
  hear(in, words, 1);
  OK(cuMemFree_v2, counter);
  OK(cuEventDestroy_v2, own);
}

int main(void) {
  int there[2], back[2], status;
  signal(SIGPIPE, SIG_IGN);
  REQUIRE(pipe(there) == 0 && pipe(back) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(there[1]), close(back[0]);
    importer(there[0], back[1]);
    exit(0);
  }
  close(there[0]), close(back[1]);
  exporter(back[0], there[1]);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  puts("processes_share ok");
  return 0;
}
