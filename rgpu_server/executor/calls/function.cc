// Handlers: functions, kernels, occupancy.
#include <cstring>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

using Hint = rgpuFunctionHint_Request;
using Occupancy = rgpuOccupancy_Request;
using Place = Table<Function>::Reservation;

// Adds a function or kernel that the driver returned, and puts its parameters and attributes into
// the reply.
template <typename Reply>
CUresult AddFunction(Executor& executor, Place& place, std::shared_ptr<Function> function,
                     Reply* reply) {
  thread_local FunctionFacts facts;
  facts = {};
  const CUresult result = ReadFacts(executor, function.get(), &facts);
  if (result != CUDA_SUCCESS) return result;
  reply->params = wire::Bytes(facts.params.data(), facts.params.size() * sizeof(uint32_t));
  reply->attributes =
      wire::Bytes(facts.attributes.data(), facts.attributes.size() * sizeof(int32_t));
  place.Add(std::move(function));
  return CUDA_SUCCESS;
}

// Takes the function or kernel with a name from the driver with `get(name)`.
template <typename Get>
CUresult LookUp(const Place& place, wire::ByteView name, Get get, Function* function) {
  if (place.result() != CUDA_SUCCESS) return place.result();
  std::string text;
  if (!ToName(name, &text)) return CUDA_ERROR_INVALID_VALUE;
  function->name = ShortName(text);
  return get(text.c_str());
}

// Enters the command's context and finds the function or kernel of the request.
template <typename Request>
CUresult EnterAndFind(Executor& executor, const Command& command, const Request& request,
                      Function** function) {
  std::shared_ptr<Context> context;
  const CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  return FindFunction(executor, request.function, request.kernel, function);
}

}  // namespace

CUresult Run(Executor& executor, const Command& command,
             const rgpuModuleGetFunction_Request& request, rgpuModuleGetFunction_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  auto function = std::make_shared<Function>();
  if (result == CUDA_SUCCESS)
    result = executor.objects().modules.Share(request.module, &function->code);
  if (result != CUDA_SUCCESS) return result;
  Place place(executor.objects().functions, request.function);
  function->context = function->code->context->id;
  const auto get = [&](const char* name) {
    return executor.driver()->cuModuleGetFunction(&function->function, function->code->module,
                                                  name);
  };
  result = LookUp(place, request.name, get, function.get());
  if (result != CUDA_SUCCESS) return result;
  return AddFunction(executor, place, std::move(function), reply);
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuLibraryGetKernel_Request& request, rgpuLibraryGetKernel_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  auto kernel = std::make_shared<Function>();
  if (result == CUDA_SUCCESS)
    result = executor.objects().libraries.Share(request.library, &kernel->code);
  if (result != CUDA_SUCCESS) return result;
  Place place(executor.objects().kernels, request.kernel);
  kernel->context = context->id;
  const auto get = [&](const char* name) {
    return executor.driver()->cuLibraryGetKernel(&kernel->kernel, kernel->code->library, name);
  };
  result = LookUp(place, request.name, get, kernel.get());
  if (result != CUDA_SUCCESS) return result;
  return AddFunction(executor, place, std::move(kernel), reply);
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuKernelGetFunction_Request& request, rgpuKernelGetFunction_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  std::shared_ptr<Function> kernel;  // shared, because PlaceLibrary may release the lock
  if (result == CUDA_SUCCESS) result = executor.objects().kernels.Share(request.kernel, &kernel);
  if (result != CUDA_SUCCESS) return result;
  Place place(executor.objects().functions, request.function);
  result = place.result();
  if (result == CUDA_SUCCESS) result = PlaceLibrary(executor, *context, *kernel->code);
  if (result != CUDA_SUCCESS) return result;
  auto function = std::make_shared<Function>();
  function->code = kernel->code;
  function->context = context->id;
  function->name = kernel->name;
  result = executor.driver()->cuKernelGetFunction(&function->function, kernel->kernel);
  if (result != CUDA_SUCCESS) return result;
  return AddFunction(executor, place, std::move(function), reply);
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuFunctionSetAttribute_Request& request, rgpuFunctionSetAttribute_Reply*) {
  Function* function = nullptr;
  CUresult result = EnterAndFind(executor, command, request, &function);
  if (result != CUDA_SUCCESS) return result;
  const auto attribute = static_cast<CUfunction_attribute>(request.attribute);
  const Driver& driver = executor.driver();
  return function->function != nullptr
             ? driver->cuFuncSetAttribute(function->function, attribute, request.value)
             : driver->cuKernelSetAttribute(attribute, request.value, function->kernel,
                                            executor.device());
}

CUresult Run(Executor& executor, const Command& command, const rgpuFunctionHint_Request& request,
             rgpuFunctionHint_Reply*) {
  Function* function = nullptr;
  CUresult result = EnterAndFind(executor, command, request, &function);
  if (result != CUDA_SUCCESS) return result;
  if (request.what == Hint::kSharedMemConfig)
    return CUDA_SUCCESS;  // no effect on supported devices
  if (request.what != Hint::kCacheConfig) return CUDA_ERROR_INVALID_VALUE;
  const auto config = static_cast<CUfunc_cache>(request.value);
  const Driver& driver = executor.driver();
  return function->function != nullptr
             ? driver->cuFuncSetCacheConfig(function->function, config)
             : driver->cuKernelSetCacheConfig(function->kernel, config, executor.device());
}

CUresult Run(Executor& executor, const Command& command, const rgpuFunctionLoad_Request& request,
             rgpuFunctionLoad_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  std::shared_ptr<Function> function;
  if (result == CUDA_SUCCESS)
    result = executor.objects().functions.Share(request.function, &function);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  if (driver->cuFuncLoad == nullptr || driver->cuFuncIsLoaded == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUfunctionLoadingState state{};
  if (request.load == rgpuFunctionLoad_Request::kAsk) {
    result = driver->cuFuncIsLoaded(&state, function->function);
    reply->state = static_cast<int32_t>(state);
    return result;
  }
  Charged charged;
  const Compiling compiling(executor, function->name);
  result = LoadCharged(
      executor, 0, [&] { return driver->cuFuncLoad(function->function); }, [] {}, &charged);
  // The code stays loaded until its module goes, so the charge belongs to the module.
  if (result == CUDA_SUCCESS) {
    function->code->charged_bytes += charged.bytes;
    function->loaded = CUDA_SUCCESS;
  }
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuOccupancy_Request& request,
             rgpuOccupancy_Reply* reply) {
  Function* function = nullptr;
  CUresult result = EnterAndFind(executor, command, request, &function);
  if (result != CUDA_SUCCESS) return result;
  const Driver& driver = executor.driver();
  if (request.what == Occupancy::kBlocksPerProcessor) {
    int blocks = 0;
    result = driver->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, function->launchable(), request.block_size, request.dynamic, request.flags);
    reply->value = static_cast<uint64_t>(blocks);
    return result;
  }
  if (request.what != Occupancy::kAvailableShared) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = 0;
  result = driver->cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function->launchable(),
                                                           request.blocks, request.block_size);
  reply->value = bytes;
  return result;
}

namespace {

// What the client's callback returned for block sizes 1, 32, 64, ...; the client evaluated it. Set
// only around the driver's call.
thread_local wire::ByteView t_dynamic;

size_t DynamicForBlock(int block_size) {
  const size_t index = block_size < 32 ? 0 : static_cast<size_t>(block_size) / 32;
  uint64_t bytes = 0;
  if ((index + 1) * sizeof bytes <= t_dynamic.size) {
    std::memcpy(&bytes, t_dynamic.data + index * sizeof bytes, sizeof bytes);
  }
  return bytes;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command,
             const rgpuOccupancyBlockSize_Request& request, rgpuOccupancyBlockSize_Reply* reply) {
  Function* function = nullptr;
  CUresult result = EnterAndFind(executor, command, request, &function);
  if (result != CUDA_SUCCESS) return result;
  t_dynamic = request.table;
  return executor.driver()->cuOccupancyMaxPotentialBlockSizeWithFlags(
      &reply->min_grid, &reply->block_size, function->launchable(),
      request.table.size == 0 ? nullptr : DynamicForBlock, request.dynamic, request.limit,
      request.flags);
}

}  // namespace rgpu::exec
