/* A graph with a node of every kind, built by hand: it runs, runs again after single nodes and the whole were
 * changed, and skips a node that is disabled. */
#include "litmus.h"

enum { WORDS = 1024 };

static CUdeviceptr counter, words, copied, flag;
static unsigned *host;
static int called;

static void call(void *amount) { called += (int)(intptr_t)amount; }

static CUgraph graph;
static CUgraphNode set, count, copy, out, function, record, wait_node, values, child;
static CUevent recorded;

static unsigned number(CUdeviceptr address) {
  unsigned value;
  OK(cuMemcpyDtoH_v2, &value, address, 4);
  return value;
}

static CUDA_MEMCPY3D copy_of(CUdeviceptr to, void *to_host, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D params = {0};
  params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = from;
  params.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  params.dstDevice = to;
  params.dstHost = to_host;
  params.WidthInBytes = bytes;
  params.Height = params.Depth = 1;
  return params;
}

static CUDA_KERNEL_NODE_PARAMS kernel(const char *name, unsigned threads, void **arguments) {
  CUDA_KERNEL_NODE_PARAMS params = {0};
  params.func = litmus_function(name);
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = threads;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  return params;
}

static CUDA_MEMSET_NODE_PARAMS set_of(unsigned value) {
  CUDA_MEMSET_NODE_PARAMS params = {0};
  params.dst = words;
  params.elementSize = 4;
  params.value = value;
  params.width = WORDS;
  params.height = 1;
  return params;
}

static void build(CUcontext context) {
  CUgraph inside;
  CUgraphNode empty, in_child;
  void *counted[] = {&counter};
  uint64_t n = WORDS;
  void *moved[] = {&copied, &words, &n};
  CUDA_MEMSET_NODE_PARAMS sets = set_of(7);
  CUDA_KERNEL_NODE_PARAMS adds = kernel("add_one", 32, counted), copies = kernel("copy_words", 64, moved);
  CUDA_MEMCPY3D two = copy_of(copied, NULL, words, 4 * WORDS / 2), back = copy_of(0, host, copied, 4 * WORDS);
  CUDA_HOST_NODE_PARAMS calls = {call, (void *)1};
  CUstreamBatchMemOpParams operations[2] = {0};
  operations[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = flag;
  operations[0].writeValue.value = 5;
  operations[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = flag;
  operations[1].waitValue.value = 5;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context, 2, operations, 0};

  OK(cuGraphCreate, &graph, 0);
  OK(cuGraphAddMemsetNode, &set, graph, NULL, 0, &sets, context);
  OK(cuGraphAddKernelNode_v2, &count, graph, NULL, 0, &adds);
  OK(cuGraphAddMemcpyNode, &copy, graph, &set, 1, &two, context);
  OK(cuGraphCreate, &inside, 0);
  OK(cuGraphAddKernelNode_v2, &in_child, inside, NULL, 0, &copies);
  OK(cuGraphAddChildGraphNode, &child, graph, &copy, 1, inside);
  OK(cuGraphDestroy, inside);
  CUgraphNode both[] = {child, count};
  OK(cuGraphAddEmptyNode, &empty, graph, both, 2);
  OK(cuGraphAddBatchMemOpNode, &values, graph, &empty, 1, &batch);
  OK(cuGraphAddEventRecordNode, &record, graph, &values, 1, recorded);
  OK(cuGraphAddEventWaitNode, &wait_node, graph, &record, 1, recorded);
  OK(cuGraphAddMemcpyNode, &out, graph, &wait_node, 1, &back, context);
  OK(cuGraphAddHostNode, &function, graph, &out, 1, &calls);
}

static void check(CUgraphExec exec, CUstream stream, unsigned value, unsigned counted, int calls) {
  memset(host, 0, 4 * WORDS);
  OK(cuGraphLaunch, exec, stream);
  OK(cuStreamSynchronize, stream);
  OK(cuEventQuery, recorded);
  REQUIRE(host[0] == value && host[WORDS / 2] == value && host[WORDS - 1] == value);
  REQUIRE(number(counter) == counted);
  REQUIRE(called == calls);
}

int main(void) {
  CUstream stream;
  CUgraphExec exec;
  CUgraph clone;
  CUgraphNode cloned;
  CUgraphExecUpdateResultInfo info;
  CUcontext context = litmus_context();
  OK(cuMemAlloc_v2, &counter, 4);
  OK(cuMemAlloc_v2, &flag, 4);
  OK(cuMemAlloc_v2, &words, 4 * WORDS);
  OK(cuMemAlloc_v2, &copied, 4 * WORDS);
  OK(cuMemHostAlloc, (void **)&host, 4 * WORDS, 0);
  OK(cuMemsetD32_v2, counter, 0, 1);
  OK(cuMemsetD32_v2, flag, 0, 1);
  OK(cuCtxSynchronize); /* the stream does not wait for sets in the default stream */
  OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OK(cuEventCreate, &recorded, 0);
  build(context);
  OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
  check(exec, stream, 7, 32, 1);
  check(exec, stream, 7, 64, 2);

  /* Single nodes: a kernel's size, a set's value, a host function's data, where the bytes go. */
  void *counted[] = {&counter};
  CUDA_KERNEL_NODE_PARAMS adds = kernel("add_one", 1, counted);
  CUDA_MEMSET_NODE_PARAMS sets = set_of(8);
  CUDA_HOST_NODE_PARAMS calls = {call, (void *)10};
  OK(cuGraphExecKernelNodeSetParams_v2, exec, count, &adds);
  OK(cuGraphExecMemsetNodeSetParams, exec, set, &sets, context);
  OK(cuGraphExecHostNodeSetParams, exec, function, &calls);
  check(exec, stream, 8, 65, 12);
  CUDA_MEMCPY3D back = copy_of(0, host, words, 4 * WORDS);
  OK(cuGraphExecMemcpyNodeSetParams, exec, out, &back, context);
  check(exec, stream, 8, 66, 22);

  /* A disabled node does nothing. */
  OK(cuGraphNodeSetEnabled, exec, count, 0);
  check(exec, stream, 8, 66, 32);
  OK(cuGraphNodeSetEnabled, exec, count, 1);
  OK(cuGraphNodeSetEnabled, exec, out, 0);
  memset(host, 3, 4 * WORDS);
  OK(cuGraphLaunch, exec, stream);
  OK(cuStreamSynchronize, stream);
  REQUIRE(host[0] == 0x03030303 && number(counter) == 67 && called == 42);
  OK(cuGraphNodeSetEnabled, exec, out, 1);

  /* The whole: as the graph is now, and then as a changed clone of it. */
  OK(cuGraphExecUpdate_v2, exec, graph, &info);
  REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  check(exec, stream, 7, 99, 43);
  OK(cuGraphClone, &clone, graph);
  OK(cuGraphNodeFindInClone, &cloned, set, clone);
  sets = set_of(9);
  OK(cuGraphMemsetNodeSetParams, cloned, &sets);
  OK(cuGraphExecUpdate_v2, exec, clone, &info);
  check(exec, stream, 9, 131, 44);
  OK(cuGraphAddEmptyNode, &cloned, clone, NULL, 0);
  EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2, exec, clone, &info);
  REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  check(exec, stream, 9, 163, 45);
  OK(cuGraphExecDestroy, exec);
  OK(cuGraphDestroy, graph);
  OK(cuGraphDestroy, clone);
  puts("graph_of_every_kind ok");
  return 0;
}
