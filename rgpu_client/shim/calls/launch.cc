// Launches.
#include <string.h>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/functions.h"
#include "rgpu_client/shim/calls/pinned_params.h"
#include "rgpu_client/shim/calls/twins.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/launch.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

constexpr uint32_t kCooperative = rgpuLaunch_Request::kCooperative;

LaunchLimits LimitsOf(const Device& device) {
  const auto get = [&](CUdevice_attribute id) {
    return static_cast<unsigned>(device.Attribute(static_cast<int>(id)));
  };
  LaunchLimits limits;
  limits.grid = {get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                 get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  limits.block = {get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                  get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                  get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  limits.threads = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  limits.shared_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  limits.registers = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  return limits;
}

// Checks that the device can hold every block of a cooperative launch at the same time.
CUresult CheckCooperative(const Here& here, Function& function, const Geometry& geometry) {
  const Device& device = *here.session->devices().Find(here.context->device);
  if (device.Attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const auto product = [](const std::array<unsigned, 3>& d) {
    return uint64_t{d[0]} * d[1] * d[2];
  };
  int blocks = 0;
  const CUresult status = MaxActiveBlocks(here, function, static_cast<int>(product(geometry.block)),
                                          geometry.shared_bytes, 0, &blocks);
  if (status != CUDA_SUCCESS) return status;
  const auto places = static_cast<uint64_t>(blocks) *
                      static_cast<uint64_t>(device.Attribute(
                          static_cast<int>(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
  return product(geometry.grid) > places ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

struct Launch {
  CUfunction function = nullptr;
  Geometry geometry;
  CUstream stream = nullptr;
  uint32_t flags = 0;
  void** params = nullptr;
  void** extra = nullptr;
  const CUlaunchConfig* config = nullptr;  // with its attributes, if the call has some
};

CUresult Send(const Here& here, Function& function, const Launch& launch,
              const PackedParams& packed) {
  const Geometry& g = launch.geometry;
  rgpuLaunch_Request request;
  request.function = FunctionOperand(function);
  request.kernel = KernelOperand(function);
  request.grid_x = g.grid[0];
  request.grid_y = g.grid[1];
  request.grid_z = g.grid[2];
  request.block_x = g.block[0];
  request.block_y = g.block[1];
  request.block_z = g.block[2];
  request.shared_bytes = g.shared_bytes;
  request.stream = here.stream->wire;
  request.flags = launch.flags;
  request.params = wire::Bytes(packed.data, packed.bytes);
  PostOptions options = CountedWork(here, 0);
  if (!function.launched.exchange(true)) options.seq = &here.sent().doubtful_seq;
  return here.channel().Post<op_rgpuLaunch>(here.issuer(), request, options);
}

// The launch as the node of a graph.
graph::KernelParams NodeOf(const Here& here, const Function& function, const Launch& launch,
                           const PackedParams& packed) {
  graph::KernelParams node;
  node.function = function.is_kernel ? nullptr : MakeHandle<CUfunction>(function.id);
  node.kernel = function.is_kernel ? MakeHandle<CUkernel>(function.id) : nullptr;
  node.context = MakeHandle<CUcontext>(here.context->id);
  for (size_t i = 0; i < 3; ++i) {
    node.grid[i] = launch.geometry.grid[i];
    node.block[i] = launch.geometry.block[i];
  }
  node.shared_bytes = launch.geometry.shared_bytes;
  const auto* bytes = static_cast<const uint8_t*>(packed.data);
  node.bytes.assign(bytes, bytes + packed.bytes);
  for (const Param& param : function.params) node.places.push_back({param.offset, param.bytes});
  if (launch.config != nullptr) node.attributes = graph::NodeAttributes(*launch.config);
  if ((launch.flags & kCooperative) != 0) {
    CUlaunchAttributeValue value{};
    value.cooperative = 1;
    graph::SetAttribute(&node.attributes, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
  }
  return node;
}

CUresult Run(const Launch& launch) {
  Here here;
  if (const CUresult status = StreamHere(launch.stream, &here); status != CUDA_SUCCESS) {
    return status;
  }
  Function* function = FindFunction(launch.function);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A kernel belongs to no context and runs in the stream's context.
  if (!function->is_kernel && function->context != here.context_id()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUresult status = CUDA_SUCCESS;
  if (function->is_kernel) status = KernelIn(here, *function, &function);
  if (status != CUDA_SUCCESS) return status;
  status = CheckLaunch(here, *function, launch.geometry, (launch.flags & kCooperative) != 0);
  if (status != CUDA_SUCCESS) return status;
  PackedParams packed;
  status = PackParams(*function, launch.params, launch.extra, &here.thread->params, &packed);
  if (status != CUDA_SUCCESS) return status;
  const bool captured = Captured(here, &status, [&](graph::Params* params) {
    *params = NodeOf(here, *function, launch, packed);
    return CUDA_SUCCESS;
  });
  if (captured) return status;
  status = UseImages(here, &here.thread->params, &packed);
  if (status != CUDA_SUCCESS) return status;
  TraceBytes(packed.bytes);
  status = Send(here, *function, launch, packed);
  return status == CUDA_SUCCESS ? EndOfLaunch(here) : status;
}

// Reads the launch attributes of a configuration. Attributes without effect on the result are
// ignored. Attributes that this release cannot send are refused.
CUresult ReadAttributes(const CUlaunchConfig& config, Launch* launch) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (attribute.value.cooperative != 0) launch->flags |= kCooperative;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        if (const CUresult bad = CheckCluster(attribute.value); bad != CUDA_SUCCESS) return bad;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        // The attribute only allows the launch to overlap the kernel before it, so it may be
        // ignored.
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CheckLaunch(const Here& here, Function& function, const Geometry& geometry,
                     bool cooperative) {
  const Device& device = *here.session->devices().Find(here.context->device);
  const CUresult status = CheckGeometry(geometry, function, LimitsOf(device));
  return status == CUDA_SUCCESS && cooperative ? CheckCooperative(here, function, geometry)
                                               : status;
}

CUresult CheckCluster(const CUlaunchAttributeValue& value) {
  const auto& cluster = value.clusterDim;
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool one = cluster.x == 1 && cluster.y == 1 && cluster.z == 1;
  return one ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  Launch launch;
  launch.function = f;
  launch.geometry = {
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  launch.stream = hStream;
  launch.params = kernelParams;
  launch.extra = extra;
  return Run(launch);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  Launch launch;
  launch.function = f;
  launch.geometry = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                     {config->blockDimX, config->blockDimY, config->blockDimZ},
                     config->sharedMemBytes};
  launch.stream = config->hStream;
  launch.params = kernelParams;
  launch.extra = extra;
  launch.config = config;
  const CUresult status = ReadAttributes(*config, &launch);
  return status == CUDA_SUCCESS ? Run(launch) : status;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  Launch launch;
  launch.function = f;
  launch.geometry = {
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  launch.stream = hStream;
  launch.flags = kCooperative;
  launch.params = kernelParams;
  return Run(launch);
}

// The launch interface of CUDA 3: the program sets the function's block and parameters, then
// launches.

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  Function* function = FindFunction(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  Function* function = FindFunction(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  function->shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  const Function* function = FindFunction(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return numbytes <= function->param_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  Function* function = FindFunction(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (ptr == nullptr || offset < 0) return CUDA_ERROR_INVALID_VALUE;
  const auto at = static_cast<uint64_t>(offset);
  if (at + numbytes > function->param_block.size()) return CUDA_ERROR_INVALID_VALUE;
  memcpy(function->param_block.data() + at, ptr, numbytes);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return shim::cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return shim::cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  Function* function = FindFunction(f);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (grid_width <= 0 || grid_height <= 0) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = function->param_block.size();
  void* extra[] = {reinterpret_cast<void*>(1), function->param_block.data(),
                   reinterpret_cast<void*>(2), &bytes, nullptr};
  Launch launch;
  launch.function = f;
  launch.geometry = {{static_cast<unsigned>(grid_width), static_cast<unsigned>(grid_height), 1},
                     function->block,
                     function->shared_bytes};
  launch.stream = hStream;
  launch.extra = extra;
  return Run(launch);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return shim::cuLaunchGridAsync(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunch(CUfunction f) { return shim::cuLaunchGrid(f, 1, 1); }

}  // namespace rgpu::shim
