#include "rgpu_emu/device/launch.h"

#include <cstring>
#include <utility>

#include "rgpu_common/native/base/log.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/function.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/reason.h"

namespace rgpu::emu {
namespace {

// Keys of `extra`, as cuda.h documents them.
const auto kEnd = reinterpret_cast<void*>(0);
const auto kBufferPointer = reinterpret_cast<void*>(1);
const auto kBufferSize = reinterpret_cast<void*>(2);

CUresult PackExtra(const EntryInfo& entry, void** extra, std::vector<uint8_t>* params) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != kEnd; extra += 2) {
    if (extra[0] == kBufferPointer) {
      buffer = extra[1];
    } else if (extra[0] == kBufferSize && extra[1] != nullptr) {
      bytes = *static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (bytes < entry.param_bytes || (buffer == nullptr && entry.param_bytes != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (entry.param_bytes != 0) std::memcpy(params->data(), buffer, entry.param_bytes);
  return CUDA_SUCCESS;
}

// Checks that a block fits into the device's memory, and for a cooperative grid that all blocks fit
// at once.
CUresult CheckMemory(const Kernel& kernel, const LaunchShape& shape) {
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  const uint64_t shared = uint64_t{kernel.static_shared_bytes()} + shape.dynamic_shared;
  const GridRunner& runner = *TheDevice().runner;
  if (!runner.Fits(kernel, threads, shared, 1)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const uint64_t blocks = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  return !shape.cooperative || runner.Fits(kernel, threads, shared, blocks)
             ? CUDA_SUCCESS
             : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

// The node of a launch that is captured.
CUresult MakeNode(const Function& function, const LaunchShape& shape, std::vector<uint8_t> params,
                  const graph::Attributes& attributes, graph::Params* node) {
  graph::KernelParams kernel;
  kernel.function = As<CUfunction>(function.handle);
  kernel.context = As<CUcontext>(function.module()->owner()->handle);
  std::copy(shape.grid, shape.grid + 3, kernel.grid);
  std::copy(shape.block, shape.block + 3, kernel.block);
  kernel.shared_bytes = shape.dynamic_shared;
  kernel.bytes = std::move(params);
  for (const ParamInfo& param : function.info().params)
    kernel.places.push_back({param.offset, param.size});
  kernel.attributes = attributes;
  if (shape.cooperative) {
    CUlaunchAttributeValue value{};
    value.cooperative = 1;
    graph::SetAttribute(&kernel.attributes, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
  }
  *node = std::move(kernel);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult PackParams(const EntryInfo& entry, void** kernel_params, void** extra,
                    std::vector<uint8_t>* params) {
  if (kernel_params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->assign(entry.param_bytes, 0);
  if (extra != nullptr) return PackExtra(entry, extra, params);
  if (entry.params.empty()) return CUDA_SUCCESS;
  if (kernel_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < entry.params.size(); ++i) {
    const ParamInfo& param = entry.params[i];
    if (kernel_params[i] == nullptr || param.offset > entry.param_bytes ||
        param.size > entry.param_bytes - param.offset) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(params->data() + param.offset, kernel_params[i], param.size);
  }
  return CUDA_SUCCESS;
}

CUresult CheckShape(const Function& function, const LaunchShape& shape) {
  constexpr uint32_t kMaxGrid[3] = {kMaxGridX, kMaxGridYZ, kMaxGridYZ};
  constexpr uint32_t kMaxBlock[3] = {kMaxBlockX, kMaxBlockY, kMaxBlockZ};
  uint64_t threads = 1;
  uint64_t blocks = 1;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > kMaxGrid[i]) return CUDA_ERROR_INVALID_VALUE;
    if (shape.block[i] == 0 || shape.block[i] > kMaxBlock[i]) return CUDA_ERROR_INVALID_VALUE;
    threads *= shape.block[i];
    blocks *= shape.grid[i];
  }
  const EntryInfo& entry = function.info();
  // The kernel's own limit (.maxntid) gives INVALID_VALUE too. LAUNCH_OUT_OF_RESOURCES is only for
  // too few registers, and every block has enough here (see BlocksPerSm).
  if (threads > static_cast<uint64_t>(MaxThreads(entry))) return CUDA_ERROR_INVALID_VALUE;
  if (!IsRequiredBlock(entry, shape.block)) return CUDA_ERROR_INVALID_VALUE;
  if (shape.dynamic_shared > MaxDynamicShared(entry, *function.state))
    return CUDA_ERROR_INVALID_VALUE;
  // All blocks of a cooperative grid run at the same time, as many as are resident on a GPU.
  const auto resident = static_cast<uint64_t>(
      BlocksPerSm(entry, static_cast<int>(threads), shape.dynamic_shared) * SmCount());
  if (shape.cooperative && blocks > resident) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return CUDA_SUCCESS;
}

CUresult RunLaunch(const ReadyLaunch& ready) {
  FaultInfo fault;
  const CUresult result = TheDevice().runner->RunGrid(ready.launch, &fault);
  if (result == CUDA_SUCCESS || ready.module->owner()->cancelled()) return CUDA_SUCCESS;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // There is no memory for local or shared windows: the launch fails, but the context continues.
    // The sentence explains no later failure.
    if (!fault.message.empty()) base::Log(base::Level::kError, "%s", fault.message.c_str());
    ready.module->owner()->Defer(result);
    return CUDA_SUCCESS;
  }
  if (!fault.message.empty()) NoteFault(fault.message);
  return result;
}

CUresult PrepareLaunch(const std::shared_ptr<Function>& function, const LaunchShape& shape,
                       std::vector<uint8_t> params, std::shared_ptr<const ReadyLaunch>* out) {
  auto ready = std::make_shared<ReadyLaunch>();
  const Outcome lowered = function->module()->code()->Lower(function->entry, &ready->kernel);
  if (!lowered.ok()) return lowered.result;
  if (const CUresult fits = CheckMemory(*ready->kernel, shape); fits != CUDA_SUCCESS) return fits;
  ready->module = function->module();
  const std::shared_ptr<Context>& context = ready->module->owner();
  // As with a real driver, the first launch that needs more local memory than the default stack
  // reserves it for every thread that can be resident. The reservation stays.
  if (!context->ReserveLocal(ready->kernel->local_bytes())) return CUDA_ERROR_OUT_OF_MEMORY;
  ready->params = std::move(params);
  Launch& launch = ready->launch;
  launch.kernel = ready->kernel.get();
  launch.name = function->info().name.c_str();
  std::copy(shape.grid, shape.grid + 3, launch.grid);
  std::copy(shape.block, shape.block + 3, launch.block);
  launch.dynamic_shared = shape.dynamic_shared;
  launch.cooperative = shape.cooperative;
  launch.globals = ready->module->globals().data();
  launch.params = ready->params.data();
  launch.param_bytes = static_cast<uint32_t>(ready->params.size());
  launch.owner = context.get();
  launch.failed = &context->failed();
  *out = std::move(ready);
  return CUDA_SUCCESS;
}

CUresult PushLaunch(const std::shared_ptr<Function>& function,
                    const std::shared_ptr<Stream>& stream, const LaunchShape& shape,
                    std::vector<uint8_t> params, const graph::Attributes& attributes) {
  CUresult result = CUDA_SUCCESS;
  if (Capture(*stream, &result, [&](auto* node) {
        return MakeNode(*function, shape, std::move(params), attributes, node);
      }))
    return result;
  std::shared_ptr<const ReadyLaunch> ready;
  result = PrepareLaunch(function, shape, std::move(params), &ready);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [ready] { return RunLaunch(*ready); };
  return stream->Push(std::move(command));
}

}  // namespace rgpu::emu
