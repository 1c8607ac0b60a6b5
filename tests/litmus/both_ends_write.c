/* Two threads copy 64 MiB in opposite directions at once, again and again: neither end may wait for the
 * other to read.  LITMUS_ROUNDS (default 100) says how often. */
#include "litmus.h"

enum { BYTES = 64 << 20 };
static CUcontext context;
static CUdeviceptr up, down;
static int rounds = 100;

static void *upload(void *host) {
  OK(cuCtxSetCurrent, context);
  for (int i = 0; i < rounds; i++) OK(cuMemcpyHtoD_v2, up, host, BYTES);
  return NULL;
}

int main(void) {
  pthread_t thread;
  if (getenv("LITMUS_ROUNDS")) rounds = atoi(getenv("LITMUS_ROUNDS"));
  context = litmus_context();
  unsigned char *sent = malloc(BYTES), *received = malloc(BYTES);
  memset(sent, 0x5a, BYTES);
  memset(received, 0, BYTES);
  OK(cuMemAlloc_v2, &up, BYTES);
  OK(cuMemAlloc_v2, &down, BYTES);
  OK(cuMemsetD8_v2, down, 0xa5, BYTES);
  litmus_thread(&thread, upload, sent);
  for (int i = 0; i < rounds; i++) OK(cuMemcpyDtoH_v2, received, down, BYTES);
  pthread_join(thread, NULL);
  REQUIRE(received[0] == 0xa5 && received[BYTES - 1] == 0xa5);
  OK(cuMemcpyDtoH_v2, received, up, BYTES);
  REQUIRE(memcmp(sent, received, BYTES) == 0);
  puts("both_ends_write ok");
  return 0;
}
