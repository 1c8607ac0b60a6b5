/* Two processes of one lease.  One allocates and frees often, then calls nothing for a while.  The
 * other one must get all memory that cuMemGetInfo calls free, in one piece, although a driver may
 * have kept some of it for the first one's next allocations.  Then they change places. */
#include "litmus.h"

#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 3, LIVE = 16, STEPS = 400 };

/* Allocations of up to a 512th of the memory, of which some stay. */
static void allocate_often(CUdeviceptr* live, size_t total) {
  unsigned state = 1;
  for (int i = 0; i < STEPS; i++) {
    CUdeviceptr* place = &live[i % LIVE];
    if (*place) OK(cuMemFree_v2, *place);
    state = state * 1103515245u + 12345u;
    OK(cuMemAlloc_v2, place, 1 + state % (total / 512));
  }
}

/* Tells the other process and waits for it, without a call. */
static void change_places(int in, int out, int last) {
  char token = 'x';
  REQUIRE(write(out, &token, 1) == 1 || last);
  REQUIRE(read(in, &token, 1) == 1 || last);
}

/* Takes what is free, as NVIDIA's driver gives it: its last pieces may be too small to be of use.
 */
static void take_all(void) {
  size_t free_bytes, total;
  CUdeviceptr memory;
  OK(cuMemGetInfo_v2, &free_bytes, &total);
  OK(cuMemAlloc_v2, &memory, (free_bytes - total / 16) / (2 << 20) * (2 << 20));
  OK(cuMemFree_v2, memory);
  OK(cuCtxSynchronize);
}

static void take_turns(int in, int out, int first) {
  CUdeviceptr live[LIVE] = {0};
  size_t free_bytes, total;
  litmus_context();
  OK(cuMemGetInfo_v2, &free_bytes, &total);
  for (int i = 0; i < 2 * ROUNDS; i++) {
    if ((i % 2 == 0) == first) {
      allocate_often(live, total);
      change_places(in, out, i == 2 * ROUNDS - 1);
    } else {
      char token;
      REQUIRE(read(in, &token, 1) == 1);
      take_all();
      REQUIRE(write(out, "x", 1) == 1);
    }
  }
}

int main(void) {
  int there[2], back[2], status;
  signal(SIGPIPE, SIG_IGN);
  REQUIRE(pipe(there) == 0 && pipe(back) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(there[1]), close(back[0]);
    take_turns(there[0], back[1], 0);
    exit(0);
  }
  close(there[0]), close(back[1]);
  take_turns(back[0], there[1], 1);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  puts("small_allocations_across_processes ok");
  return 0;
}
