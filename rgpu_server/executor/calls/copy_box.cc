// Handlers: copies of boxes, and copies between arrays.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/boxes.h"
#include "rgpu_server/executor/context_order.h"
#include "rgpu_server/executor/copies.h"

namespace rgpu::exec {

CUresult Run(Executor& executor, const Command& command, const rgpuCopyBoxIn_Request& request,
             rgpuCopyBoxIn_Reply*) {
  Target target;
  Rows rows;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = BoxOf(executor, request, &rows);
  if (result != CUDA_SUCCESS) return result;
  return CopyFromBulk(executor, command, target, rows, request.synchronous != 0);
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyBoxInPull_Request& request,
             rgpuCopyBoxInPull_Reply*) {
  bool asks = false;
  Target target;
  Rows rows;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = BoxOf(executor, request, &rows);
  if (result == CUDA_SUCCESS) result = PullIn(executor, command, target, rows, &asks);
  if (!asks) FailDelivery(executor, command, result);
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyBoxOut_Request& request,
             rgpuCopyBoxOut_Reply*) {
  Target target;
  Rows rows;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = BoxOf(executor, request, &rows);
  return result == CUDA_SUCCESS ? CopyToClient(executor, command, target, rows) : result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyBoxOutLater_Request& request,
             rgpuCopyBoxOutLater_Reply*) {
  Target target;
  Rows rows;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = BoxOf(executor, request, &rows);
  if (result == CUDA_SUCCESS) result = Deliver(executor, command, target, rows);
  if (result != CUDA_SUCCESS) FailDelivery(executor, command, result);
  return result;
}

namespace {

struct Boxes {
  Rows to;
  Rows from;
  uint64_t total = 0;
};

template <typename Request>
CUresult Check(Executor& executor, const Request& request, Boxes* boxes) {
  CUresult result = BoxesOf(executor, request, &boxes->to, &boxes->from);
  if (result == CUDA_SUCCESS) result = CheckRows(executor, boxes->to, &boxes->total);
  if (result == CUDA_SUCCESS) result = CheckRows(executor, boxes->from, &boxes->total);
  return result;
}

template <typename Params, typename Request>
Params ParamsOf(const Boxes& boxes, const Request& request) {
  Params params{};
  SetTarget(boxes.to, &params);
  SetSource(boxes.from, &params);
  params.WidthInBytes = request.width;
  params.Height = request.height;
  params.Depth = request.depth;
  return params;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuCopyBoxWithin_Request& request,
             rgpuCopyBoxWithin_Reply*) {
  Target target;
  Boxes boxes;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = Check(executor, request, &boxes);
  if (result != CUDA_SUCCESS || boxes.total == 0) return result;
  executor.ledger().CountCopy(boxes.total);
  const auto params = ParamsOf<CUDA_MEMCPY3D>(boxes, request);
  result = executor.order().Issue(
      *target.stream, {0, nullptr, &executor.copies().within, boxes.total},
      [&](CUstream stream) { return executor.driver()->cuMemcpy3DAsync_v2(&params, stream); });
  if (result == CUDA_SUCCESS && request.synchronous != 0) target.stream->fence_pending = true;
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyBoxPeer_Request& request,
             rgpuCopyBoxPeer_Reply*) {
  Target target;
  Boxes boxes;
  std::shared_ptr<Context> to;
  std::shared_ptr<Context> from;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) result = FindContext(executor, request.dst_context, &to);
  if (result == CUDA_SUCCESS) result = FindContext(executor, request.src_context, &from);
  if (result == CUDA_SUCCESS) result = Check(executor, request, &boxes);
  if (result != CUDA_SUCCESS || boxes.total == 0) return result;
  executor.ledger().CountCopy(boxes.total);
  auto params = ParamsOf<CUDA_MEMCPY3D_PEER>(boxes, request);
  params.dstContext = to->handle;
  params.srcContext = from->handle;
  const auto copy = [&] {
    return executor.order().Issue(
        *target.stream, {0, nullptr, &executor.copies().within, boxes.total},
        [&](CUstream stream) { return executor.driver()->cuMemcpy3DPeerAsync(&params, stream); });
  };
  return request.serial != 0 ? Serially(executor, *target.stream, *to, *from, copy) : copy();
}

}  // namespace rgpu::exec
