/* Copies with arrays in graphs: from the host into layers, between arrays, and out again, built by hand and captured.
 * Each launch takes the bytes that are there then, and an update makes the graph use another array. */
#include "litmus.h"

enum { WIDTH = 48, HEIGHT = 10, LAYERS = 4, BYTES = WIDTH * HEIGHT * LAYERS };
enum { X = 4, Y = 2, PART_WIDTH = 8, PART_HEIGHT = 3, PART_LAYERS = 2, PART = PART_WIDTH * PART_HEIGHT * PART_LAYERS };

static unsigned char *given, *got;
static CUarray layers, other, row;
static CUdeviceptr words;

static CUarray make(size_t height, size_t depth, unsigned flags) {
  CUarray array;
  CUDA_ARRAY3D_DESCRIPTOR shape = {WIDTH, height, depth, CU_AD_FORMAT_UNSIGNED_INT8, 1, flags};
  OK(cuArray3DCreate_v2, &array, &shape);
  return array;
}

static CUDA_MEMCPY3D box(size_t width, size_t height, size_t depth) {
  CUDA_MEMCPY3D params = {0};
  params.WidthInBytes = width;
  params.Height = height;
  params.Depth = depth;
  return params;
}

/* The whole of `given`, into an array. */
static CUDA_MEMCPY3D into(CUarray array) {
  CUDA_MEMCPY3D params = box(WIDTH, HEIGHT, LAYERS);
  params.srcMemoryType = CU_MEMORYTYPE_HOST;
  params.srcHost = given;
  params.srcPitch = WIDTH;
  params.srcHeight = HEIGHT;
  params.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  params.dstArray = array;
  return params;
}

/* A part of an array, from its second layer on, into device memory. */
static CUDA_MEMCPY3D part_of(CUarray array) {
  CUDA_MEMCPY3D params = box(PART_WIDTH, PART_HEIGHT, PART_LAYERS);
  params.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  params.srcArray = array;
  params.srcXInBytes = X;
  params.srcY = Y;
  params.srcZ = 1;
  params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.dstDevice = words;
  params.dstPitch = PART_WIDTH;
  params.dstHeight = PART_HEIGHT;
  return params;
}

static CUDA_MEMCPY3D between(CUarray to, CUarray from) {
  CUDA_MEMCPY3D params = box(WIDTH, HEIGHT, LAYERS);
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  params.srcArray = from;
  params.dstArray = to;
  return params;
}

static void fill(unsigned seed) {
  for (unsigned i = 0; i < BYTES; ++i) given[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void launch(CUgraphExec exec, CUstream stream) {
  OK(cuGraphLaunch, exec, stream);
  OK(cuStreamSynchronize, stream);
}

/* `got` has the part of `given`. */
static void check_part(void) {
  for (unsigned z = 0; z < PART_LAYERS; ++z) {
    for (unsigned y = 0; y < PART_HEIGHT; ++y) {
      const unsigned char *from = given + ((1 + z) * HEIGHT + Y + y) * WIDTH + X;
      REQUIRE(memcmp(got + (z * PART_HEIGHT + y) * PART_WIDTH, from, PART_WIDTH) == 0);
    }
  }
}

static void built_by_hand(CUcontext context, CUstream stream) {
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode first, second, third, last;
  CUgraphExecUpdateResultInfo info;
  CUDA_MEMCPY3D in = into(layers), over = between(other, layers), out = part_of(other), back = box(PART, 1, 1), seen;
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = words;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = got;
  OK(cuGraphCreate, &graph, 0);
  OK(cuGraphAddMemcpyNode, &first, graph, NULL, 0, &in, context);
  OK(cuGraphAddMemcpyNode, &second, graph, &first, 1, &over, context);
  OK(cuGraphAddMemcpyNode, &third, graph, &second, 1, &out, context);
  OK(cuGraphAddMemcpyNode, &last, graph, &third, 1, &back, context);
  OK(cuGraphMemcpyNodeGetParams, third, &seen);
  REQUIRE(seen.srcMemoryType == CU_MEMORYTYPE_ARRAY && seen.srcArray == other && seen.srcXInBytes == X);
  REQUIRE(seen.srcY == Y && seen.srcZ == 1 && seen.WidthInBytes == PART_WIDTH && seen.Depth == PART_LAYERS);
  OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
  for (unsigned turn = 0; turn < 3; ++turn) {
    fill(turn);
    memset(got, 0, PART);
    launch(exec, stream);
    check_part();
  }
  /* The bytes go back between the arrays now, and the part is of the first one: it has those of the last turn. */
  over = between(layers, other);
  out = part_of(layers);
  OK(cuGraphMemcpyNodeSetParams, second, &over);
  OK(cuGraphMemcpyNodeSetParams, third, &out);
  OK(cuGraphExecUpdate_v2, exec, graph, &info);
  REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  fill(100);
  memset(got, 0, PART);
  launch(exec, stream);
  fill(2);
  check_part();
  OK(cuGraphExecDestroy, exec);
  OK(cuGraphDestroy, graph);
}

static void captured(CUstream stream) {
  CUgraph graph;
  CUgraphExec exec;
  CUDA_MEMCPY3D in = into(layers), out = into(layers);
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstArray = NULL;
  out.dstHost = got;
  out.dstPitch = WIDTH;
  out.dstHeight = HEIGHT;
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcHost = NULL;
  out.srcArray = other;
  CUDA_MEMCPY3D over = between(other, layers);
  OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuMemcpy3DAsync_v2, &in, stream);
  OK(cuMemcpy3DAsync_v2, &over, stream);
  OK(cuMemcpy3DAsync_v2, &out, stream);
  OK(cuMemcpyHtoAAsync_v2, row, 8, given, WIDTH - 8, stream);
  OK(cuMemcpyAtoHAsync_v2, got + BYTES, row, 0, WIDTH, stream);
  OK(cuStreamEndCapture, stream, &graph);
  OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
  memset(given, 0, WIDTH);
  OK(cuMemcpyHtoA_v2, row, 0, given, WIDTH);
  for (unsigned turn = 5; turn < 8; ++turn) {
    fill(turn);
    memset(got, 0, BYTES + WIDTH);
    launch(exec, stream);
    REQUIRE(memcmp(got, given, BYTES) == 0);
    REQUIRE(got[BYTES] == 0 && memcmp(got + BYTES + 8, given, WIDTH - 8) == 0);
  }
  OK(cuGraphExecDestroy, exec);
  OK(cuGraphDestroy, graph);
}

int main(void) {
  CUstream stream;
  CUcontext context = litmus_context();
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuMemHostAlloc, (void **)&given, BYTES, 0);
  OK(cuMemHostAlloc, (void **)&got, BYTES + WIDTH, 0);
  OK(cuMemAlloc_v2, &words, PART);
  layers = make(HEIGHT, LAYERS, CUDA_ARRAY3D_LAYERED);
  other = make(HEIGHT, LAYERS, CUDA_ARRAY3D_LAYERED);
  row = make(0, 0, 0);
  built_by_hand(context, stream);
  captured(stream);
  puts("graph_copies_arrays ok");
  return 0;
}
