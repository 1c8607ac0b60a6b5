#include "rgpu_server/executor/page_traffic.h"

#include "gen/codec.gen.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

template <typename Request>
bool Decode(const Command& command, Request* request) {
  wire::Reader fields(command.head.data, command.head.size);
  return Get(fields, request);
}

bool IsPageStream(Executor& executor, const Command& command, uint64_t stream) {
  Target target;
  return executor.Find(command, stream, &target) == CUDA_SUCCESS && target.stream->unfenced;
}

bool IsPiece(uint64_t width, uint64_t height) { return height == 1 && width <= wire::kPieceBytes; }

}  // namespace

bool IsPageTraffic(Executor& executor, const OpcodeInfo& info, const Command& command) {
  switch (info.opcode) {
    case Opcode::rgpuPageStreamCreate:
      return true;
    case Opcode::rgpuCopyHtoD: {
      rgpuCopyHtoD_Request request;
      return Decode(command, &request) && IsPiece(request.width, request.height) &&
             IsPageStream(executor, command, request.stream);
    }
    case Opcode::rgpuCopyDtoH: {
      rgpuCopyDtoH_Request request;
      return Decode(command, &request) && IsPiece(request.width, request.height) &&
             IsPageStream(executor, command, request.stream);
    }
    case Opcode::rgpuStreamSynchronize: {
      rgpuStreamSynchronize_Request request;
      return Decode(command, &request) && IsPageStream(executor, command, request.stream);
    }
    default:
      return false;
  }
}

bool PagesMustWait(Executor& executor) {
  PageAllowance& pages = executor.pages();
  pages.Pass(base::NowNs());
  if (!pages.spent()) return false;
  Gate& gate = executor.gate();
  if (gate.on() && !gate.Admits(executor.copies().in->Predict(pages.used()))) return true;
  pages.Renew();
  return false;
}

const std::shared_ptr<Estimate>* CountedCopy(Executor& executor, const Stream& stream,
                                             const std::shared_ptr<Estimate>& kind, uint64_t bytes,
                                             uint64_t all) {
  if (!stream.unfenced || all > wire::kPieceBytes) return &kind;
  executor.gate().Spent(kind->Predict(bytes));
  executor.pages().Use(bytes, base::NowNs());
  return nullptr;
}

}  // namespace rgpu::exec
