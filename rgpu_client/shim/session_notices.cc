// The part of Session that handles notices: messages that the worker sends unasked.
#include <stdio.h>

#include "gen/errors.gen.h"
#include "rgpu_client/shim/host_functions.h"
#include "rgpu_client/shim/runtime.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/session.h"
#include "rgpu_client/shim/trace.h"
#include "rgpu_common/native/base/error_log.h"
#include "rgpu_common/native/base/log.h"

namespace rgpu::shim {

// The special values 1 and 2 mean the legacy stream of the context and the per-thread stream of the
// context and thread.
Stream* Session::FindStream(uint32_t context_id, uint32_t thread, uint64_t wire) {
  if (wire > kWirePerThreadStream) return handles_.Find<Stream>(wire);
  Context* context = handles_.Find<Context>(context_id);
  if (context == nullptr) return nullptr;
  if (wire == kWireLegacyStream) return &context->legacy;
  const std::lock_guard lock(thread_streams_mutex_);
  const auto it = thread_streams_.find({context_id, thread});
  return it == thread_streams_.end() ? nullptr : it->second.get();
}

void Session::OnCredit(const wire::FrameHeader& header, uint64_t stream, uint64_t completed) {
  if (Stream* found = FindStream(header.context, header.thread, stream))
    found->credits.Return(completed);
}

void Session::OnCompleted(const wire::FrameHeader& header, uint64_t object, uint64_t version,
                          uint64_t time_ns) {
  Progress* progress = nullptr;
  if (Event* event = handles_.Find<Event>(object)) {
    progress = &event->progress;
  } else if (Stream* stream = FindStream(header.context, header.thread, object)) {
    progress = &stream->progress;
  }
  if (progress == nullptr || version < progress->completed.load()) return;
  if (time_ns != 0) {  // 0: the event has no timing
    progress->time_ns.store(time_ns);
    progress->time_version.store(version);
  }
  progress->completed.store(version);
}

// level 0: output of a kernel's printf; 1: the reason of an error; 2: a warning; 3: lines of a
// kernel's asserts.
void Session::OnLog(uint32_t level, std::string_view text) {
  if (level == 0 || level == 3) {
    FILE* const file = level == 0 ? stdout : stderr;
    fwrite(text.data(), 1, text.size(), file);
    fflush(file);
    return;
  }
  // A warning is no reason of an error that a later call may ask for.
  if (level != 2) base::LogSentence(text);
  if (base::LogOn(base::Level::kError)) {
    Say("%.*s", static_cast<int>(text.size()), text.data());
  }
}

void Session::OnMemoryCredit(uint64_t granted, uint64_t freed, bool wanted) {
  memory_credit_.Freed(freed);
  memory_credit_.Granted(granted);
  if (wanted) ReturnCredit();
}

void Session::OnCompiled(uint64_t ns, std::string_view name) { TraceCompiled(name, ns); }

void Session::OnPull(const wire::Pull& pull, const HostRegion& source, uint64_t start) {
  control_.SendPulled(pull, source, start);
}

// Points are passed here and not by the thread of host functions: a function of the program may
// take as long as it likes, and no stream waits for that of another device.
void Session::OnCallback(uint64_t callback, const HostCall& call, CUresult status) {
  if (call.point == nullptr) return HostFunctions::Run(&control_, callback, call, status);
  if (!call.waits) call.point->Reach();
  if (callback == 0) return;
  if (call.waits) return call.point->Wait(&control_, callback);
  control_.SendCallbackDone(callback);
}

void Session::OnSticky(CUresult status, std::string_view sentence) {
  base::LogSentence(sentence);
  TraceFailure(sentence);
  const char* name = ErrorName(status);
  const char* calls = LiveSessions().size() > 1 ? "for this device" : "of this process";
  Say("%.*s (server %s). Every CUDA call %s answers %s (%d) from now on; restart the program.",
      static_cast<int>(sentence.size()), sentence.data(), server_.c_str(), calls,
      name == nullptr ? "an error" : name, static_cast<int>(status));
}

}  // namespace rgpu::shim
