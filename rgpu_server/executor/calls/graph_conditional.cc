// Handlers: values of conditional nodes. The driver makes them for a graph, which the executable
// graph takes over.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/graphs/build.h"

namespace rgpu::exec {

ConditionalValues::ConditionalValues(std::shared_ptr<Context> context)
    : context_(std::move(context)) {}

ConditionalValues::~ConditionalValues() { context_->conditionals -= count_; }

void ConditionalValues::Drop() {
  --count_;
  --context_->conditionals;
}

// The emulated device takes pages for the most values that a context has had at one time, and keeps
// them until the context goes.
CUresult ConditionalValues::Add(Executor& executor) {
  constexpr uint64_t kPageBytes = 4096;
  constexpr uint64_t kInPage = kPageBytes / sizeof(uint64_t);
  ++count_;
  ++context_->conditionals;
  if (!executor.driver().emulated ||
      context_->conditionals <= context_->conditional_pages * kInPage) {
    return CUDA_SUCCESS;
  }
  ++context_->conditional_pages;
  const CUresult result = executor.memory().ChargeNow(kPageBytes);
  if (result == CUDA_SUCCESS && !context_->dead) {
    context_->own_charged += kPageBytes;
    return CUDA_SUCCESS;
  }
  --context_->conditional_pages;
  Drop();
  if (result == CUDA_SUCCESS) executor.ledger().Release(kPageBytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

namespace {

// The graph with that id, or a new one.
CUresult FindOrMake(Executor& executor, const std::shared_ptr<Context>& context, uint64_t id,
                    std::shared_ptr<GraphShell>* out) {
  if (executor.objects().graphs.Share(id, out) == CUDA_SUCCESS) return CUDA_SUCCESS;
  CUresult result = executor.objects().graphs.CanAdd(id);
  auto made = std::make_shared<GraphShell>();
  made->context = context;
  made->values = std::make_shared<ConditionalValues>(context);
  if (result == CUDA_SUCCESS) result = executor.driver()->cuGraphCreate(&made->handle, 0);
  if (result != CUDA_SUCCESS) return result;
  executor.objects().graphs.Add(id, made);
  *out = std::move(made);
  return CUDA_SUCCESS;
}

CUresult AddHandle(Executor& executor, GraphShell& shell,
                   const rgpuGraphConditional_Request& request, uint64_t* handle) {
  ReturnRoom(executor);
  // The charge may release the lock. If an executable graph has taken the driver's graph, its
  // handles cannot become more.
  const std::shared_ptr<ConditionalValues> values = shell.values;
  if (values == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult charged = values->Add(executor);
  if (charged != CUDA_SUCCESS) return charged;
  CUgraphConditionalHandle made = 0;
  CUresult result = CUDA_SUCCESS;
  if (shell.handle == nullptr) {
    result = CUDA_ERROR_NOT_SUPPORTED;
  } else if (!shell.budget->Take()) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    result = executor.driver()->cuGraphConditionalHandleCreate(
        &made, shell.handle, shell.context->handle, request.default_value, request.flags);
  }
  if (result != CUDA_SUCCESS) values->Drop();
  *handle = made;
  return result;
}

CUresult Destroy(Executor& executor, uint64_t id) {
  std::shared_ptr<GraphShell> shell;
  const CUresult result = executor.objects().graphs.Take(id, &shell);
  if (result != CUDA_SUCCESS || shell->handle == nullptr) return result;
  return executor.driver()->cuGraphDestroy(shell->handle);
}

}  // namespace

CUresult Run(Executor& executor, const Command& command,
             const rgpuGraphConditional_Request& request, rgpuGraphConditional_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result != CUDA_SUCCESS) return result;
  if (executor.driver()->cuGraphConditionalHandleCreate == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::shared_ptr<GraphShell> shell;
  result = FindOrMake(executor, context, request.graph, &shell);
  if (result != CUDA_SUCCESS) return result;
  if (shell->context != context) return CUDA_ERROR_NOT_SUPPORTED;
  result = AddHandle(executor, *shell, request, &reply->handle);
  // The client destroys a graph only if it has got a handle of it.
  GraphShell* there = nullptr;
  if (result != CUDA_SUCCESS && shell->values != nullptr && shell->values->empty() &&
      executor.objects().graphs.Find(request.graph, &there) == CUDA_SUCCESS &&
      there == shell.get()) {
    Destroy(executor, request.graph);
  }
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuGraphDestroy_Request& request,
             rgpuGraphDestroy_Reply*) {
  return Destroy(executor, request.graph);
}

}  // namespace rgpu::exec
