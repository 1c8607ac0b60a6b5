// Who is told what the channel receives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gen/cuda_abi.gen.h"
#include "gen/notices.gen.h"
#include "rgpu_client/shim/host_call.h"
#include "rgpu_client/shim/host_region.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace rgpu::shim {

// Receives the notices that concern more than the channel. The thread that reads calls it, and
// holds no lock.
class NoticeHandler {
 public:
  virtual void OnCredit(const wire::FrameHeader& header, uint64_t stream, uint64_t completed) = 0;
  virtual void OnCompleted(const wire::FrameHeader& header, uint64_t object, uint64_t version,
                           uint64_t time_ns) = 0;
  // The worker has granted so much memory credit in all, and carried out the frees up to `freed`.
  virtual void OnMemoryCredit(uint64_t, uint64_t, bool) {}
  virtual void OnLog(uint32_t level, std::string_view text) = 0;
  // The driver spent `ns` compiling or loading a kernel. An empty name means a module.
  virtual void OnCompiled(uint64_t, std::string_view) {}
  // The worker asks for bytes. `start`: where these are in `source`.
  virtual void OnPull(const wire::Pull& pull, const HostRegion& source, uint64_t start) = 0;
  // Its stream has come to `call`; `callback` is its number for CALLBACK_DONE. 0: the stream never
  // comes there, because the session has failed with `status`.
  virtual void OnCallback(uint64_t callback, const HostCall& call, CUresult status) = 0;
  // The server's reason for the end of a connection that gave none; empty: none either.
  virtual std::string WhyEnded() { return {}; }
  // Called once per session, with the reason why every later call fails.
  virtual void OnSticky(CUresult status, std::string_view sentence) = 0;

 protected:
  ~NoticeHandler() = default;
};

// Receives the bulk bytes of a reply.
class ReplySink {
 public:
  // Must read exactly `bytes` of bulk from the reader. False: the bytes are out of bounds, and the
  // session ends.
  virtual bool OnData(uint64_t offset, uint32_t bytes, transport::FrameReader& reader) = 0;

 protected:
  ~ReplySink() = default;
};

}  // namespace rgpu::shim
