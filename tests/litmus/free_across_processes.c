/* Two processes of one lease: one frees 60 % of the memory and tells the other, which allocates 60 %.  The
 * free has been posted when the word goes out; the allocation must find it done. */
#include "litmus.h"

#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 10 };

/* Allocates when told, frees, tells the other.  The free is not waited for. */
static void take_turns(int in, int out) {
  char token;
  size_t total;
  CUdeviceptr memory;
  litmus_context();
  OK(cuDeviceTotalMem_v2, &total, 0);
  for (int i = 0; i < ROUNDS; i++) {
    REQUIRE(read(in, &token, 1) == 1);
    OK(cuMemAlloc_v2, &memory, total / 10 * 6);
    OK(cuMemFree_v2, memory);
    /* After the last round the other may be gone already. */
    REQUIRE(write(out, &token, 1) == 1 || i + 1 == ROUNDS);
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
    take_turns(there[0], back[1]);
    exit(0);
  }
  close(there[0]), close(back[1]);
  REQUIRE(write(there[1], "x", 1) == 1);
  take_turns(back[0], there[1]);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  puts("free_across_processes ok");
  return 0;
}
