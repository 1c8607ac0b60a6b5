#include <unordered_set>

#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/graphs/build.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

// Shared, because the client may destroy the kernel while the lock is released.
CUresult LoadKernel(Executor& executor, const std::shared_ptr<Context>& context,
                    const std::shared_ptr<Function>& function) {
  LoadFunction(executor, *context, function);
  const CUresult loaded = function->loaded.value_or(CUDA_SUCCESS);
  if (loaded != CUDA_SUCCESS) {
    function->loaded.reset();  // the next one tries again
    return loaded;
  }
  return ChargeLaunch(executor, *context, *function);
}

}  // namespace

CUresult LoadKernels(Executor& executor, const std::shared_ptr<Context>& context,
                     const wire::GraphDefinition& definition) {
  CUresult result = CUDA_SUCCESS;
  std::unordered_set<const Function*> done;
  ForEachNode(definition, [&](const wire::GraphNode& node) {
    const auto* kernel = std::get_if<wire::GraphKernel>(&node.parameters);
    if (kernel == nullptr || result != CUDA_SUCCESS) return;
    std::shared_ptr<Function> function;
    const CUresult found = kernel->function != 0
                               ? executor.objects().functions.Share(kernel->function, &function)
                               : executor.objects().kernels.Share(kernel->kernel, &function);
    // BuildGraph reports what is not found, with the node.
    if (found != CUDA_SUCCESS || !done.insert(function.get()).second) return;
    std::shared_ptr<Context> place = context;
    if (kernel->context != 0) executor.objects().contexts.Share(kernel->context, &place);
    if (place != nullptr) result = LoadKernel(executor, place, function);
  });
  return result;
}

}  // namespace rgpu::exec
