// Handler: host functions, which the client runs when their stream has come to them.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

void RunInClient(void* opaque) {
  auto* call = static_cast<HostCall*>(opaque);
  call->executor.host_calls().Run(*call);
}

CUresult Launch(Executor& executor, const Command& command, uint64_t operand) {
  Target target;
  const CUresult found = executor.FindCredited(command, operand, &target);
  if (found != CUDA_SUCCESS) return found;
  // The function may wait for anything that other threads of the program see.
  executor.OrderIsHidden();
  auto call = std::make_shared<HostCall>(executor);
  call->command = command.header;
  executor.host_calls().Add(*call);
  Stream& stream = *target.stream;
  bool launched = false;
  const CUresult result = executor.order().Issue(stream, {0, call}, [&](CUstream) {
    call->frontier = stream.frontier;
    const CUresult taken =
        executor.order().LaunchWait(stream, RunInClient, call.get(), &call->wait_place);
    launched = taken == CUDA_SUCCESS;
    return taken;
  });
  return launched ? CUDA_SUCCESS : result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuHostFunction_Request& request,
             rgpuHostFunction_Reply*) {
  const CUresult result = Launch(executor, command, request.stream);
  if (result != CUDA_SUCCESS) FailDelivery(executor, command, result);
  return result;
}

}  // namespace rgpu::exec
