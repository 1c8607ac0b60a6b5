// Handlers: launches.
#include "gen/codec.gen.h"
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

CUresult LoadCode(const Driver& driver, const Function& function) {
  CUfunction code = function.function;
  if (code == nullptr) {
    const CUresult result = driver->cuKernelGetFunction(&code, function.kernel);
    if (result != CUDA_SUCCESS) return result;
  }
  return driver->cuFuncLoad(code);
}

// For a launch after the lock was released: the gate may have closed, and the kernel may have gone.
CUresult AskAgain(Executor& executor, const Command& command, const rgpuLaunch_Request& request,
                  Function** function) {
  const CUresult result = executor.gate().Await(executor.Predict(command));
  return result == CUDA_SUCCESS ? FindFunction(executor, request.function, request.kernel, function)
                                : result;
}

// Finds the kernel of a launch that is to be issued now, and makes sure that its code is loaded.
CUresult FindLoaded(Executor& executor, const Command& command, const rgpuLaunch_Request& request,
                    Function** function) {
  CUresult result = FindFunction(executor, request.function, request.kernel, function);
  if (result != CUDA_SUCCESS || (*function)->loaded == CUDA_SUCCESS) return result;
  if (!(*function)->loaded) {
    LoadBeforeLaunch(executor, command);
    result = AskAgain(executor, command, request, function);
    if (result != CUDA_SUCCESS) return result;
  }
  const CUresult loaded = (*function)->loaded.value_or(CUDA_SUCCESS);
  if (loaded != CUDA_SUCCESS) (*function)->loaded.reset();  // the next launch tries again
  return loaded;
}

CUresult LaunchOn(const Driver& driver, const rgpuLaunch_Request& request, CUfunction function,
                  CUstream stream) {
  size_t params_bytes = request.params.size;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(request.params.data),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &params_bytes, CU_LAUNCH_PARAM_END};
  void** parameters = params_bytes == 0 ? nullptr : extra;
  if ((request.flags & rgpuLaunch_Request::kCooperative) == 0) {
    return driver->cuLaunchKernel(function, request.grid_x, request.grid_y, request.grid_z,
                                  request.block_x, request.block_y, request.block_z,
                                  request.shared_bytes, stream, nullptr, parameters);
  }
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = request.grid_x;
  config.gridDimY = request.grid_y;
  config.gridDimZ = request.grid_z;
  config.blockDimX = request.block_x;
  config.blockDimY = request.block_y;
  config.blockDimZ = request.block_z;
  config.sharedMemBytes = request.shared_bytes;
  config.hStream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return driver->cuLaunchKernelEx(&config, function, nullptr, parameters);
}

}  // namespace

// The driver provides stack and spill memory for all threads that can be resident, and keeps it. A
// posted command does not wait for frees: the program gets the error, as it does natively.
CUresult ChargeLaunch(Executor& executor, Context& context, const Function& function) {
  const uint64_t local_bytes = function.local_bytes;
  if (function.function == nullptr) {
    const std::shared_ptr<Code> code = function.code;
    const CUresult result = PlaceLibrary(executor, context, *code);
    if (result != CUDA_SUCCESS) return result;
  }
  if (local_bytes <= kDefaultStackBytes) return CUDA_SUCCESS;
  const uint64_t bytes = local_bytes * executor.memory().resident_threads();
  if (bytes <= context.local_charged) return CUDA_SUCCESS;
  const CUresult result = executor.memory().ChargeNow(bytes - context.local_charged);
  if (result == CUDA_SUCCESS) context.local_charged = bytes;
  return result;
}

void LoadBeforeLaunch(Executor& executor, const Command& command) {
  if (static_cast<Opcode>(command.header.opcode) != Opcode::rgpuLaunch) return;
  rgpuLaunch_Request request;
  wire::Reader fields(command.head.data, command.head.size);
  if (!Get(fields, &request)) return;
  // Shared, because the client may destroy the kernel meanwhile.
  std::shared_ptr<Function> function;
  const CUresult found = request.function != 0
                             ? executor.objects().functions.Share(request.function, &function)
                             : executor.objects().kernels.Share(request.kernel, &function);
  if (found != CUDA_SUCCESS || function->loaded) return;
  Target target;
  if (executor.Find(command, request.stream, &target) != CUDA_SUCCESS) return;
  LoadFunction(executor, *target.context, function);
}

void LoadFunction(Executor& executor, const Context& context,
                  const std::shared_ptr<Function>& function) {
  const Driver& driver = executor.driver();
  if (function->loaded) return;
  if (function->function == nullptr &&
      PlaceLibrary(executor, context, *function->code) != CUDA_SUCCESS) {
    return;
  }
  // With a driver older than 12.4 the launch itself loads the code.
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (driver->cuFuncLoad != nullptr) {
    Gate& gate = executor.gate();
    const bool holding = gate.holding();
    gate.SetHolding(false);
    const Compiling compiling(executor, function->name);
    result = executor.Unlocked([&] { return LoadCode(driver, *function); });
    gate.SetHolding(holding);
  }
  function->loaded = result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuLaunch_Request& request,
             rgpuLaunch_Reply*) {
  // FindLoaded may release the lock, so the stream is looked up afterwards.
  Function* function = nullptr;
  const CUresult found = FindLoaded(executor, command, request, &function);
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = found;
  if (result != CUDA_SUCCESS) return result;
  // A kernel runs in its stream's context; a function belongs to one context.
  if (function->function != nullptr && function->context != target.context->id) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const uint64_t unlocked = executor.times_unlocked();
  result = ChargeLaunch(executor, *target.context, *function);
  if (result == CUDA_SUCCESS && executor.times_unlocked() != unlocked) {
    result = AskAgain(executor, command, request, &function);
    if (result == CUDA_SUCCESS) result = executor.Find(command, request.stream, &target);
  }
  if (result != CUDA_SUCCESS) return result;
  executor.ledger().CountLaunch();
  return executor.order().Issue(
      *target.stream, {0, nullptr, &function->estimate, 1}, [&](CUstream stream) {
        return LaunchOn(executor.driver(), request, function->launchable(), stream);
      });
}

}  // namespace rgpu::exec
