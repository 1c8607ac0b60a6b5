/* What one transport costs: driver calls through the library that is loaded as libcuda.so.1,
 * interleaved with raw floors.  Prints one JSON object.
 *   transport FLOOR ROUNDS SIZE...
 * FLOOR: "unix" or "tcp", blocking sockets of that kind; "memcpy", for memory that is shared.
 * ROUNDS: synchronous calls; SIZE: bytes of a copy, each both ways, random data. */
#define _GNU_SOURCE
#include <string.h>

#include "driver.h"
#include "floor.h"

enum { MOST_ROUNDS = 8192, MOST_COPIES = 64, LAUNCHES = 200 };

static const char kPtx[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry nothing(.param .align 8 .b8 p[128]) { ret; }\n";
static void calls(int rounds, int echo) {
  static uint64_t ours[MOST_ROUNDS], raw[MOST_ROUNDS];
  size_t free_bytes, total;
  for (int i = 0; i < rounds; i++) {
    raw[i] = echo < 0 ? 1 : floor_ping(echo);
    uint64_t start = now_ns();
    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo_v2");
    ours[i] = now_ns() - start;
  }
  printf("{\"sync_ns\": %lu, \"ping_ns\": %lu", median(ours, rounds), median(raw, rounds));
}

static void launches(int bursts) {
  void *module, *function, *stream;
  char params[64] = {0};
  void *arguments[] = {params};
  uint64_t burst[MOST_COPIES];
  check(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
  check(cuStreamCreate(&stream, 1), "cuStreamCreate");
  for (int s = -1; s < bursts; s++) {
    uint64_t start = now_ns();
    for (int i = 0; i < LAUNCHES; i++)
      check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
    if (s >= 0) burst[s] = now_ns() - start;
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  printf(", \"issue_ns\": %.1f", (double)median(burst, bursts) / LAUNCHES);
}

static uint64_t copied(void *to, const void *from, size_t bytes) {
  uint64_t start = now_ns();
  memcpy(to, from, bytes);
  return now_ns() - start;
}

static void copies(ptr device, char *host, char *other, size_t bytes, int fd) {
  uint64_t up[MOST_COPIES], raw_up[MOST_COPIES], down[MOST_COPIES], raw_down[MOST_COPIES];
  int rounds = bytes >= (16u << 20) ? 7 : 31;
  for (int i = -1; i < rounds; i++) {
    int at = i < 0 ? 0 : i;
    raw_up[at] = fd < 0 ? copied(other, host, bytes) : floor_send(fd, host, bytes);
    uint64_t start = now_ns();
    check(cuMemcpyHtoD(device, host, bytes), "cuMemcpyHtoD_v2");
    check(cuStreamSynchronize(NULL), "cuStreamSynchronize");
    up[at] = now_ns() - start;
    start = now_ns();
    check(cuMemcpyDtoH(host, device, bytes), "cuMemcpyDtoH_v2");
    down[at] = now_ns() - start;
    raw_down[at] = fd < 0 ? copied(host, other, bytes) : floor_receive(fd, other, bytes);
  }
  printf(", \"up_%zu\": %lu, \"raw_up_%zu\": %lu, \"down_%zu\": %lu, \"raw_down_%zu\": %lu", bytes,
         median(up, rounds), bytes, median(raw_up, rounds), bytes, median(down, rounds), bytes,
         median(raw_down, rounds));
}

int main(int argc, char **argv) {
  const int rounds = argc > 2 ? atoi(argv[2]) : 0;
  if (argc < 3 || rounds < 16 || rounds > MOST_ROUNDS)
    return fprintf(stderr, "usage: transport unix|tcp|memcpy ROUNDS(16..8192) SIZE...\n"), 2;
  int echo = -1, copy = -1;
  if (strcmp(argv[1], "memcpy") != 0) floor_start(argv[1], &echo, &copy);
  driver_open();
  calls(rounds, echo);
  launches(31);
  size_t most = 0;
  for (int i = 3; i < argc; i++) most = strtoull(argv[i], NULL, 10) > most ? strtoull(argv[i], NULL, 10) : most;
  if (most > 0) {
    char *host = malloc(most), *other = malloc(most);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < most; i++) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      host[i] = (char)state;
    }
    memset(other, 1, most);
    ptr device;
    check(cuMemAlloc(&device, most), "cuMemAlloc_v2");
    for (int i = 3; i < argc; i++) copies(device, host, other, strtoull(argv[i], NULL, 10), copy);
  }
  puts("}");
  return 0;
}
