// Handlers: direct copies, which the client makes itself (directs.h).
#include <algorithm>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

using Held = std::unique_ptr<std::shared_ptr<Direct>>;

void HoldStream(void* argument) {
  const Held own(static_cast<std::shared_ptr<Direct>*>(argument));
  (*own)->executor->directs().Hold(**own);
}

struct Wanted {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t stream = 0;
};

CUresult Begin(Executor& executor, const Command& command, const Wanted& wanted,
               const Estimate& estimate, uint64_t* ticket) {
  if (!executor.directs().allowed()) return CUDA_ERROR_NOT_SUPPORTED;
  Target target;
  CUresult result = executor.Find(command, wanted.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  uint64_t total = 0;
  result = CheckRows(executor, {wanted.address, wanted.bytes, wanted.bytes, 1}, &total);
  if (result != CUDA_SUCCESS) return result;
  if (total == 0) return CUDA_ERROR_INVALID_VALUE;
  // The client has the heap's file mapped, in which mapped addresses have another place. Memory
  // that processes share is not in it.
  uint64_t base = 0;
  Range range;
  if (!executor.objects().ranges.At(wanted.address, &base, &range)) return CUDA_ERROR_INVALID_VALUE;
  const bool elsewhere =
      range.exported || range.kind == Range::Kind::kMapped || range.kind == Range::Kind::kImported;
  if (elsewhere) return CUDA_ERROR_NOT_SUPPORTED;
  executor.ledger().CountCopy(total);
  const bool idle =
      std::ranges::all_of(target.context->streams, [](const auto& one) { return one->idle(); });
  const auto direct =
      executor.directs().Add(wanted.address, wanted.bytes, estimate.Predict(total), idle);
  result = executor.order().Issue(*target.stream, {}, [&](CUstream) {
    auto own = std::make_unique<std::shared_ptr<Direct>>(direct);
    const CUresult issued =
        executor.order().LaunchWait(*target.stream, HoldStream, own.get(), &direct->wait_place);
    if (issued == CUDA_SUCCESS) (void)own.release();
    return issued;
  });
  if (result == CUDA_SUCCESS) result = executor.directs().AwaitStream(direct, *target.context);
  if (result == CUDA_SUCCESS) executor.memory().TrimAfterWait(nullptr);
  *ticket = direct->ticket;
  return result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuCopyInDirect_Request& request,
             rgpuCopyInDirect_Reply* reply) {
  return Begin(executor, command, {request.dst, request.bytes, request.stream},
               *executor.copies().in, &reply->ticket);
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyOutDirect_Request& request,
             rgpuCopyOutDirect_Reply* reply) {
  return Begin(executor, command, {request.src, request.bytes, request.stream},
               *executor.copies().out, &reply->ticket);
}

}  // namespace rgpu::exec
