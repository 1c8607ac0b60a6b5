#define _GNU_SOURCE
#include "floor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OP_SEND = 1, OP_RECEIVE = 2 };
struct request {
  uint64_t op, bytes;
  char pad[48];
};

uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int compare_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

uint64_t median(uint64_t *values, size_t count) {
  qsort(values, count, sizeof *values, compare_u64);
  return values[count / 2];
}

static void die(const char *what) {
  perror(what);
  _exit(1);
}

static void send_all(int fd, const void *data, size_t bytes) {
  const char *p = data;
  while (bytes > 0) {
    ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) die("floor send");
    if (n > 0) p += n, bytes -= (size_t)n;
  }
}

static void receive_all(int fd, void *data, size_t bytes) {
  char *p = data;
  while (bytes > 0) {
    ssize_t n = recv(fd, p, bytes, 0);
    if (n == 0) _exit(0);
    if (n < 0 && errno != EINTR) die("floor recv");
    if (n > 0) p += n, bytes -= (size_t)n;
  }
}

static void serve_echo(int fd) {
  char message[FLOOR_MESSAGE];
  for (;;) {
    receive_all(fd, message, sizeof message);
    send_all(fd, message, sizeof message);
  }
}

static void serve_copies(int fd) {
  struct request request;
  char *buffer = malloc(256u << 20);
  memset(buffer, 1, 256u << 20);
  for (;;) {
    receive_all(fd, &request, sizeof request);
    if (request.op == OP_SEND) {
      receive_all(fd, buffer, request.bytes);
      send_all(fd, &request, sizeof request);
    } else {
      send_all(fd, buffer, request.bytes);
    }
  }
}

static void make_pair(const char *kind, int fds[2]) {
  if (strcmp(kind, "unix") == 0) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) die("socketpair");
    return;
  }
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0) die("listen");
  getsockname(listener, (struct sockaddr *)&address, &size);
  fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fds[0], (struct sockaddr *)&address, size) != 0) die("connect");
  fds[1] = accept(listener, NULL, NULL);
  close(listener);
  for (int i = 0; i < 2; i++) {
    setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* As rgpu asks for: BBR's pacing would make the floor easier to reach. */
    if (setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
      setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  }
}

/* Where the peer of a floor runs: the processor that FLOOR_CPU names, if it names one. */
static void take_processor(void) {
  const char *named = getenv("FLOOR_CPU");
  if (named == NULL) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(atoi(named), &only);
  if (sched_setaffinity(0, sizeof only, &only) != 0) die("sched_setaffinity");
}

static int start_child(const char *kind, void (*serve)(int)) {
  int fds[2];
  make_pair(kind, fds);
  pid_t parent = getpid(), child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    close(fds[0]);
    take_processor();
    serve(fds[1]);
  }
  close(fds[1]);
  return fds[0];
}

int floor_start(const char *kind, int *echo_fd, int *copy_fd) {
  *echo_fd = start_child(kind, serve_echo);
  *copy_fd = start_child(kind, serve_copies);
  return 0;
}

uint64_t floor_ping(int fd) {
  char message[FLOOR_MESSAGE] = {0};
  uint64_t start = now_ns();
  send_all(fd, message, sizeof message);
  receive_all(fd, message, sizeof message);
  return now_ns() - start;
}

uint64_t floor_send(int fd, const void *data, size_t bytes) {
  struct request request = {.op = OP_SEND, .bytes = bytes};
  uint64_t start = now_ns();
  send_all(fd, &request, sizeof request);
  send_all(fd, data, bytes);
  receive_all(fd, &request, sizeof request);
  return now_ns() - start;
}

uint64_t floor_receive(int fd, void *data, size_t bytes) {
  struct request request = {.op = OP_RECEIVE, .bytes = bytes};
  uint64_t start = now_ns();
  send_all(fd, &request, sizeof request);
  receive_all(fd, data, bytes);
  return now_ns() - start;
}
