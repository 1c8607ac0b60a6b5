/* What other calls may do while a stream captures: by the mode of the capture, and by the mode of the thread that
 * calls.  A call that may not be made fails with 900, and the capture is then invalid. */
#include "litmus.h"

static CUcontext context;

static void begin(CUstream stream, CUstreamCaptureMode mode) {
  OK(cuStreamBeginCapture_v2, stream, mode);
}

static void end(CUstream stream, CUresult wanted) {
  CUgraph graph = NULL;
  EXPECT(wanted, cuStreamEndCapture, stream, &graph);
  REQUIRE((graph != NULL) == (wanted == CUDA_SUCCESS));
  if (graph) OK(cuGraphDestroy, graph);
}

/* Allocates in a thread of its own, in a mode of its own. */
struct other {
  CUstreamCaptureMode mode;
  CUresult wanted;
};

static void *allocate(void *argument) {
  struct other *other = argument;
  CUstreamCaptureMode mode = other->mode;
  CUdeviceptr memory = 0;
  OK(cuCtxSetCurrent, context);
  OK(cuThreadExchangeStreamCaptureMode, &mode);
  REQUIRE(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT(other->wanted, cuMemAlloc_v2, &memory, 4096);
  if (memory) {
    OK(cuMemFree_v2, memory);
  }
  return NULL;
}

static void in_other_thread(CUstreamCaptureMode mode, CUresult wanted) {
  struct other other = {mode, wanted};
  pthread_t thread;
  litmus_thread(&thread, allocate, &other);
  pthread_join(thread, NULL);
}

/* Asks for an event that no capture knows. */
static void *poll_event(void *argument) {
  CUevent event;
  OK(cuCtxSetCurrent, context);
  OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  EXPECT((CUresult)(intptr_t)argument, cuEventQuery, event);
  return NULL;
}

static void *end_in_other_thread(void *stream) {
  CUgraph graph = NULL;
  OK(cuCtxSetCurrent, context);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture, (CUstream)stream, &graph);
  return NULL;
}

int main(void) {
  CUstream stream, other;
  CUevent event;
  CUstreamCaptureStatus status;
  pthread_t thread;
  context = litmus_context();
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
  OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);

  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  in_other_thread(CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS);
  OK(cuStreamIsCapturing, stream, &status);
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuStreamIsCapturing, stream, &status);
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS);
  end(stream, CUDA_SUCCESS);

  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS);
  litmus_thread(&thread, allocate, &(struct other){CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS});
  pthread_join(thread, NULL);
  end(stream, CUDA_SUCCESS);

  for (int relaxed = 0; relaxed < 2; relaxed++) {
    const CUresult poll = relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    begin(stream, relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL);
    litmus_thread(&thread, poll_event, (void *)(intptr_t)poll);
    pthread_join(thread, NULL);
    end(stream, relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }

  /* Waiting for what is captured makes no sense. */
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventRecord, event, stream);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize, stream);
  end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventRecord, event, stream);
  EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery, event);
  EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize, event);
  CUgraph graph = NULL;
  CUresult result = CU(cuStreamEndCapture, stream, &graph);
  REQUIRE(result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (graph) OK(cuGraphDestroy, graph);

  /* A stream that joined must be joined again. */
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  OK(cuEventRecord, event, stream);
  OK(cuStreamWaitEvent, other, event, 0);
  CUdeviceptr word = 0;
  CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode, &relaxed);
  OK(cuMemAlloc_v2, &word, 4);
  OK(cuThreadExchangeStreamCaptureMode, &relaxed);
  OK(cuMemsetD32Async, word, 1, 1, other);
  end(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

  /* The thread that began the capture ends it. */
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  litmus_thread(&thread, end_in_other_thread, stream);
  pthread_join(thread, NULL);
  end(stream, CUDA_SUCCESS);

  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2, NULL, CU_STREAM_CAPTURE_MODE_RELAXED);
  /* Nothing of all this reached the device. */
  OK(cuCtxSynchronize);
  puts("capture_modes ok");
  return 0;
}
