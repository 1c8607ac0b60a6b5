/* The call benchmark: driver calls through the library that is loaded as libcuda.so.1, interleaved
 * with the raw floor of the same transport.  Prints one JSON object.
 *   calls KIND all ROUNDS     sync call, launch storm, alloc+free, copies
 *   calls KIND copies ROUNDS  only the copies
 *   calls KIND open           nanoseconds of cuInit in a fresh process
 *   calls KIND idle           opens a session with a context, prints "ready", waits for end of input */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "floor.h"

typedef unsigned long long ptr;
static int (*cuInit)(unsigned);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemGetInfo)(size_t *, size_t *);
static int (*cuMemAlloc)(ptr *, size_t);
static int (*cuMemFree)(ptr);
static int (*cuMemcpyHtoD)(ptr, const void *, size_t);
static int (*cuMemcpyDtoH)(void *, ptr, size_t);
static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             void *, void **, void **);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *);

/* Every write of the library goes through these three: counted, so that "commands per write" is what
 * the kernel saw. */
static uint64_t writes;
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  writes++;
  return syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t send(int fd, const void *data, size_t bytes, int flags) {
  writes++;
  return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}
ssize_t writev(int fd, const struct iovec *iov, int count) {
  writes++;
  return syscall(SYS_writev, fd, iov, count);
}

static void check(int result, const char *what) {
  if (result == 0) return;
  fprintf(stderr, "%s failed with CUresult %d\n", what, result);
  exit(1);
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) fprintf(stderr, "no symbol %s\n", name), exit(1);
  return found;
}

static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) fprintf(stderr, "%s\n", dlerror()), exit(1);
#define GET(variable, name) *(void **)&variable = symbol(library, name)
  GET(cuInit, "cuInit");
  GET(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  GET(cuCtxSetCurrent, "cuCtxSetCurrent");
  GET(cuMemGetInfo, "cuMemGetInfo_v2");
  GET(cuMemAlloc, "cuMemAlloc_v2");
  GET(cuMemFree, "cuMemFree_v2");
  GET(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  GET(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  GET(cuModuleLoadData, "cuModuleLoadData");
  GET(cuModuleGetFunction, "cuModuleGetFunction");
  GET(cuLaunchKernel, "cuLaunchKernel");
  GET(cuStreamCreate, "cuStreamCreate");
  GET(cuStreamSynchronize, "cuStreamSynchronize");
}

static void open_context(void) {
  void *context;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/* A kernel that does nothing, with 128 bytes of parameters. */
static const char kPtx[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry nothing(.param .align 8 .b8 p[128]) { ret; }\n";

static void calls(int rounds, int echo) {
  size_t free_bytes, total;
  uint64_t ours[8192], floor_ns[8192];
  for (int i = 0; i < rounds; i++) {
    floor_ns[i] = floor_ping(echo);
    uint64_t start = now_ns();
    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo_v2");
    ours[i] = now_ns() - start;
  }
  printf("\"sync_ns\": %lu, \"ping_ns\": %lu, ", median(ours, rounds), median(floor_ns, rounds));
  for (int i = 0; i < rounds / 4; i++) {
    ptr p;
    floor_ns[i] = floor_ping(echo);
    uint64_t start = now_ns();
    check(cuMemAlloc(&p, 1 << 20), "cuMemAlloc_v2");
    check(cuMemFree(p), "cuMemFree_v2");
    ours[i] = now_ns() - start;
  }
  printf("\"alloc_free_ns\": %lu, \"alloc_ping_ns\": %lu, ", median(ours, rounds / 4), median(floor_ns, rounds / 4));
}

static void launches(int storms) {
  void *module, *function, *stream;
  char params[128] = {0};
  void *arguments[] = {params};
  uint64_t issue[256], total_writes = 0;
  check(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
  check(cuStreamCreate(&stream, 1), "cuStreamCreate");
  for (int s = -1; s < storms; s++) {
    uint64_t before = writes, start = now_ns();
    for (int i = 0; i < 1000; i++)
      check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
    uint64_t issued = now_ns() - start;
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (s < 0) continue;
    issue[s] = issued;
    total_writes += writes - before;
  }
  /* Issue cost without waiting for credits: a short burst on an idle session. */
  uint64_t burst[256];
  for (int s = 0; s < storms; s++) {
    uint64_t start = now_ns();
    for (int i = 0; i < 200; i++)
      check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
    burst[s] = now_ns() - start;
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  printf("\"storm_issue_ns\": %.1f, \"burst_issue_ns\": %.1f, \"commands_per_write\": %.2f, ",
         (double)median(issue, storms) / 1000.0, (double)median(burst, storms) / 200.0,
         1001.0 * storms / (double)total_writes);
}

static void copies(int rounds, int fd) {
  size_t bytes = 64u << 20;
  unsigned *host = malloc(bytes);
  uint64_t up[64], up_floor[64], down[64], down_floor[64];
  ptr device;
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < bytes / 4; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    host[i] = (unsigned)state;
  }
  check(cuMemAlloc(&device, bytes), "cuMemAlloc_v2");
  for (int i = -1; i < rounds; i++) {
    int at = i < 0 ? 0 : i;
    up_floor[at] = floor_send(fd, host, bytes);
    uint64_t start = now_ns();
    check(cuMemcpyHtoD(device, host, bytes), "cuMemcpyHtoD_v2");
    check(cuStreamSynchronize(NULL), "cuStreamSynchronize");
    up[at] = now_ns() - start;
    start = now_ns();
    check(cuMemcpyDtoH(host, device, bytes), "cuMemcpyDtoH_v2");
    down[at] = now_ns() - start;
    down_floor[at] = floor_receive(fd, host, bytes);
  }
  printf("\"up_ns\": %lu, \"up_floor_ns\": %lu, \"down_ns\": %lu, \"down_floor_ns\": %lu",
         median(up, rounds), median(up_floor, rounds), median(down, rounds), median(down_floor, rounds));
  check(cuMemFree(device), "cuMemFree_v2");
  free(host);
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "unix", *mode = argc > 2 ? argv[2] : "all";
  int rounds = argc > 3 ? atoi(argv[3]) : 1000, echo, copy;
  int only_copies = strcmp(mode, "copies") == 0;
  if (rounds < (only_copies ? 1 : 16) || rounds > (only_copies ? 64 : 8192))
    return fprintf(stderr, "rounds: 16 to 8192, of copies 1 to 64\n"), 2;
  if (only_copies || strcmp(mode, "all") == 0) floor_start(kind, &echo, &copy);
  load();
  if (strcmp(mode, "open") == 0) {
    uint64_t start = now_ns();
    check(cuInit(0), "cuInit");
    printf("{\"open_ns\": %lu}\n", now_ns() - start);
    return 0;
  }
  open_context();
  if (strcmp(mode, "idle") == 0) {
    puts("ready");
    fflush(stdout);
    return getchar() == EOF ? 0 : 0;
  }
  printf("{");
  if (only_copies) {
    copies(rounds, copy);
  } else {
    calls(rounds, echo);
    launches(rounds / 50 > 200 ? 200 : rounds / 50 + 1);
    copies(rounds >= 1000 ? 15 : 5, copy);
  }
  printf("}\n");
  return 0;
}
