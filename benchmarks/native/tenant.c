/* A tenant of benchmarks.quota: keeps kernels or copies queued while it is told to, and hands over
 * what the device itself counted.
 *   tenant FILE DEPTH PIECE[,PIECE...]
 *     FILE   where the device's log is written: pairs of 64-bit globaltimer stamps, begin and end of
 *            each piece, in order
 *     DEPTH  pieces that are queued between two waits; three times as many at most
 *     PIECE  hold:NS          a kernel that holds the device without using a CPU
 *            compute:ROUNDS   a kernel that computes, in as many blocks as BLOCKS says
 *            copy:BYTES       a copy within the device, with a stamp before and behind it
 *            upload:BYTES     the same from pinned host memory
 * Input, a line each: "go" queues until the next line, "pause" waits until nothing is queued, "end"
 * waits likewise and writes FILE.  Output: "ready", then a line for each "pause" and "end". */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

enum { kPieces = 16, kRing = 3, kBlocks = 8 };
static const uint64_t kCapacity = 1 << 20; /* pieces in the log */

/* The log: a counter of finished blocks, then begin and end of each piece.  One stream, so pieces
 * come one after the other: the first block to begin and the last one to end are theirs. */
#define ENTRY(name, rest)                                                                    \
  ".visible .entry " name "(.param .u64 log, .param .u64 amount, .param .u32 blocks) {\n"    \
  "  .reg .pred %p<4>; .reg .u32 %r<4>; .reg .u64 %rd<16>; .reg .f32 %f<4>;\n"               \
  "  ld.param.u64 %rd1, [log]; ld.param.u64 %rd2, [amount]; ld.param.u32 %r1, [blocks];\n"   \
  "  cvt.u64.u32 %rd3, %r1; mov.u64 %rd4, %globaltimer; mov.u32 %r2, %ctaid.x;\n"            \
  "  setp.ne.u32 %p1, %r2, 0; @%p1 bra BODY;\n"                                              \
  "  ld.volatile.global.u64 %rd5, [%rd1]; shl.b64 %rd5, %rd5, 4;\n"                          \
  "  add.u64 %rd5, %rd5, %rd1; st.global.u64 [%rd5+16], %rd4;\n"                             \
  "BODY:\n" rest                                                                             \
  "  membar.gl; atom.global.add.u64 %rd6, [%rd1+8], 1; add.u64 %rd6, %rd6, 1;\n"             \
  "  rem.u64 %rd7, %rd6, %rd3; setp.ne.u64 %p2, %rd7, 0; @%p2 bra DONE;\n"                   \
  "  mov.u64 %rd8, %globaltimer; ld.volatile.global.u64 %rd5, [%rd1]; shl.b64 %rd9, %rd5, 4;\n" \
  "  add.u64 %rd9, %rd9, %rd1; st.global.u64 [%rd9+24], %rd8;\n"                             \
  "  add.u64 %rd5, %rd5, 1; st.volatile.global.u64 [%rd1], %rd5;\n"                          \
  "DONE: ret;\n}\n"

static const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n" ENTRY(
        "hold",
        "  add.u64 %rd10, %rd4, %rd2;\n"
        "WAIT: mov.u64 %rd11, %globaltimer; setp.ge.u64 %p3, %rd11, %rd10; @%p3 bra OVER;\n"
        "  sub.u64 %rd12, %rd10, %rd11; min.u64 %rd12, %rd12, 1000000; cvt.u32.u64 %r3, %rd12;\n"
        "  nanosleep.u32 %r3; bra WAIT;\n"
        "OVER:\n")
    ENTRY("compute",
          "  mov.u64 %rd10, 0; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F7FFFFF;\n"
          "LOOP: setp.ge.u64 %p3, %rd10, %rd2; @%p3 bra OVER;\n"
          "  fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f1, %f1, %f2, %f1;\n"
          "  fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f1, %f1, %f2, %f1;\n"
          "  add.u64 %rd10, %rd10, 1; bra LOOP;\n"
          "OVER: setp.eq.f32 %p3, %f1, 0f40490FDB; @!%p3 bra KEPT; st.global.f32 [%rd1+8], %f1;\n"
          "KEPT:\n")
    /* A copy is stamped by two kernels: BEGIN writes the begin, END the end. */
    ".visible .entry begin(.param .u64 log) {\n"
    "  .reg .u64 %rd<8>; ld.param.u64 %rd1, [log]; mov.u64 %rd2, %globaltimer;\n"
    "  ld.volatile.global.u64 %rd3, [%rd1]; shl.b64 %rd3, %rd3, 4; add.u64 %rd3, %rd3, %rd1;\n"
    "  st.global.u64 [%rd3+16], %rd2; ret;\n}\n"
    ".visible .entry finish(.param .u64 log) {\n"
    "  .reg .u64 %rd<8>; ld.param.u64 %rd1, [log]; mov.u64 %rd2, %globaltimer;\n"
    "  ld.volatile.global.u64 %rd3, [%rd1]; shl.b64 %rd4, %rd3, 4; add.u64 %rd4, %rd4, %rd1;\n"
    "  st.global.u64 [%rd4+24], %rd2; add.u64 %rd3, %rd3, 1; st.volatile.global.u64 [%rd1], %rd3;\n"
    "  ret;\n}\n";

typedef enum { kHold, kCompute, kCopy, kUpload } Kind;
typedef struct {
  Kind kind;
  uint64_t amount;
} Piece;

typedef struct {
  Piece pieces[kPieces];
  int count, depth;
  uint64_t issued;
  void *stream, *hold, *compute, *begin, *finish, *events[kRing];
  ptr log, buffer;
  void *host;
} Tenant;

static void parse(Tenant *t, char *text) {
  static const char *const kNames[] = {"hold", "compute", "copy", "upload"};
  for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
    char *colon = strchr(word, ':');
    int kind = 0;
    if (!colon || t->count == kPieces) fprintf(stderr, "not a piece: %s\n", word), exit(2);
    *colon = 0;
    while (kind < 4 && strcmp(word, kNames[kind]) != 0) kind++;
    if (kind == 4) fprintf(stderr, "not a piece: %s\n", word), exit(2);
    t->pieces[t->count++] = (Piece){(Kind)kind, strtoull(colon + 1, NULL, 10)};
  }
}

static void prepare(Tenant *t) {
  void *module;
  uint64_t bytes = 0;
  driver_open();
  CHECK(cuModuleLoadData, &module, kPtx);
  CHECK(cuModuleGetFunction, &t->hold, module, "hold");
  CHECK(cuModuleGetFunction, &t->compute, module, "compute");
  CHECK(cuModuleGetFunction, &t->begin, module, "begin");
  CHECK(cuModuleGetFunction, &t->finish, module, "finish");
  CHECK(cuStreamCreate, &t->stream, 1);
  for (int i = 0; i < kRing; i++) CHECK(cuEventCreate, &t->events[i], 2);
  CHECK(cuMemAlloc, &t->log, 16 + 16 * kCapacity);
  CHECK(cuMemsetD8Async, t->log, 0, 16, t->stream);
  for (int i = 0; i < t->count; i++)
    if (t->pieces[i].kind >= kCopy && t->pieces[i].amount > bytes) bytes = t->pieces[i].amount;
  if (bytes == 0) return;
  CHECK(cuMemAlloc, &t->buffer, 2 * bytes);
  CHECK(cuMemAllocHost, &t->host, bytes);
  memset(t->host, 1, bytes);
}

static void launch(Tenant *t, void *function, unsigned blocks, uint64_t amount) {
  void *arguments[] = {&t->log, &amount, &blocks};
  CHECK(cuLaunchKernel, function, blocks, 1, 1, 1, 1, 1, 0, t->stream, arguments, NULL);
}

static void issue(Tenant *t) {
  const Piece piece = t->pieces[t->issued % (uint64_t)t->count];
  if (++t->issued > kCapacity) fprintf(stderr, "the log is full\n"), exit(1);
  switch (piece.kind) {
    case kHold:
      launch(t, t->hold, 1, piece.amount);
      return;
    case kCompute:
      launch(t, t->compute, kBlocks, piece.amount);
      return;
    case kCopy:
    case kUpload:
      launch(t, t->begin, 1, 0);
      if (piece.kind == kCopy)
        CHECK(cuMemcpyDtoDAsync, t->buffer + piece.amount, t->buffer, piece.amount, t->stream);
      else
        CHECK(cuMemcpyHtoDAsync, t->buffer, t->host, piece.amount, t->stream);
      launch(t, t->finish, 1, 0);
  }
}

static int told(void) {
  struct pollfd input = {0, POLLIN, 0};
  return poll(&input, 1, 0) != 0;
}

/* Queues until there is a line; waits only while two batches are queued behind the one it waits for. */
static void go(Tenant *t) {
  for (uint64_t batch = 0; !told(); batch++) {
    if (batch >= kRing) CHECK(cuEventSynchronize, t->events[batch % kRing]);
    for (int i = 0; i < t->depth; i++) issue(t);
    CHECK(cuEventRecord, t->events[batch % kRing], t->stream);
  }
}

static void write_log(Tenant *t, const char *path) {
  uint64_t *log = malloc(16 + 16 * t->issued);
  FILE *file = fopen(path, "wb");
  CHECK(cuMemcpyDtoH, log, t->log, 16 + 16 * t->issued);
  if (log[0] != t->issued)
    fprintf(stderr, "%llu pieces were queued, %llu counted on the device\n",
            (unsigned long long)t->issued, (unsigned long long)log[0]), exit(1);
  if (!file || fwrite(log + 2, 16, t->issued, file) != t->issued || fclose(file)) perror(path), exit(1);
  free(log);
}

int main(int argc, char **argv) {
  Tenant t = {0};
  char line[16];
  if (argc != 4) return fprintf(stderr, "tenant FILE DEPTH PIECE[,PIECE...]\n"), 2;
  t.depth = atoi(argv[2]);
  parse(&t, argv[3]);
  prepare(&t);
  for (int i = 0; i < t.count; i++) issue(&t);
  CHECK(cuStreamSynchronize, t.stream);
  puts("ready");
  fflush(stdout);
  /* Unbuffered, so that poll sees every line. */
  setvbuf(stdin, NULL, _IONBF, 0);
  while (fgets(line, sizeof line, stdin)) {
    if (strcmp(line, "go\n") == 0) {
      go(&t);
      continue;
    }
    CHECK(cuStreamSynchronize, t.stream);
    if (strcmp(line, "end\n") == 0) write_log(&t, argv[1]);
    puts("done");
    fflush(stdout);
    if (strcmp(line, "end\n") == 0) return 0;
  }
  return 1;
}
