// Calls cuStream*, except memory operations, and cuLaunchHostFunc.
#include <algorithm>

#include "rgpu_common/native/graph/make_params.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/function.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

template <class F>
CUresult WithStream(CUstream operand, F body) {
  std::shared_ptr<Stream> stream;
  const CUresult found = FindStream(operand, &stream);
  return found == CUDA_SUCCESS ? body(stream) : found;
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  const StreamKind kind =
      flags == CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking;
  const auto stream =
      context->NewStream(kind, std::clamp(priority, kGreatestPriority, kLeastPriority));
  TheDevice().streams.Add(stream->handle, stream);
  *phStream = As<CUstream>(stream->handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return emu::cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  // The program must not destroy the default streams.
  if (Raw(hStream) <= Raw(CU_STREAM_PER_THREAD)) return CUDA_ERROR_INVALID_HANDLE;
  const auto stream = TheDevice().streams.Remove(Raw(hStream));
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  graph::StreamGone(Graphs(), SiteOf(*stream));
  stream->Close();
  return stream->context()->Status();
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return WithStream(hStream, [](const auto& stream) {
    if (const CUresult bad = CheckStreamWait(*stream); bad != CUDA_SUCCESS) return bad;
    const CUresult result = WaitIn(*stream->context(), stream->Snapshot());
    TrimPoolsAfterSync();
    return result;
  });
}

CUresult cuStreamQuery(CUstream hStream) {
  return WithStream(hStream, [](const auto& stream) {
    if (const CUresult bad = CheckStreamWait(*stream); bad != CUDA_SUCCESS) return bad;
    if (!AllDone(stream->Snapshot())) return CUDA_ERROR_NOT_READY;
    return stream->context()->Status();
  });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return WithStream(hStream, [&](const auto& stream) {
    const auto event = TheDevice().events.Find(Raw(hEvent));
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto record = event->Current();
    CUresult captured = CUDA_SUCCESS;
    const bool recorded = record != nullptr || event->shared != nullptr;
    if (graph::CaptureWait(Graphs(), SiteOf(*stream), hEvent, recorded, Flags, &captured))
      return captured;
    Command command;
    if (event->shared != nullptr) {
      const SharedEvent::Record awaited = event->shared->Latest();
      if (event->shared->IsComplete(awaited)) return CUDA_SUCCESS;
      command.run = [shared = event->shared, awaited, context = stream->context()] {
        shared->Wait(awaited, *context);
        return CUDA_SUCCESS;
      };
      return stream->Push(std::move(command));
    }
    if (record == nullptr || AllDone(record->places)) return CUDA_SUCCESS;
    command.run = [] { return CUDA_SUCCESS; };
    command.after = record->places;
    return stream->Push(std::move(command));
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithStream(hStream, [&](const auto& stream) {
    CUresult captured = CUDA_SUCCESS;
    if (Capture(*stream, &captured,
                [&](auto* params) { return graph::MakeHost(fn, userData, params); }))
      return captured;
    Command command;
    command.run = [fn, userData] {
      SetInHostFunction(true);
      fn(userData);
      SetInHostFunction(false);
      return CUDA_SUCCESS;
    };
    return stream->Push(std::move(command));
  });
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int) {
  return WithStream(hStream, [&](const auto& stream) {
    if (const CUresult bad = CheckStreamWait(*stream); bad != CUDA_SUCCESS) return bad;
    Command command;
    const std::shared_ptr<Context> context = stream->context();
    command.run = [hStream, callback, userData, context] {
      SetInHostFunction(true);
      callback(hStream, context->Status(), userData);
      SetInHostFunction(false);
      return CUDA_SUCCESS;
    };
    command.always = true;  // it is told of the error
    return stream->Push(std::move(command));
  });
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return WithStream(hStream, [&](const auto& stream) {
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return WithStream(hStream, [&](const auto&) {
    *device = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return WithStream(hStream, [&](const auto& stream) {
    *flags = stream->kind == StreamKind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return WithStream(hStream, [&](const auto& stream) {
    *streamId = stream->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return WithStream(hStream, [&](const auto& stream) {
    *pctx = As<CUcontext>(stream->context()->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return emu::cuStreamGetCtx(hStream, pCtx);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return WithStream(hStream, [&](const auto&) {
    *phCtx = nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
  return WithStream(dst, [&](const auto& to) {
    return WithStream(src, [&](const auto& from) {
      to->attributes.CopyFrom(from->attributes);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value_out) {
  return WithStream(hStream, [&](const auto& stream) {
    return stream->attributes.Get(attr, stream->priority, kSyncDomains, value_out);
  });
}

// All of them are hints: the device has no second-level cache and one domain, and waits always
// block.
CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) {
  return WithStream(hStream, [&](const auto& stream) {
    return stream->attributes.Set(attr, kSyncDomains, *value);
  });
}

}  // namespace rgpu::emu
