// Headers of the notices that a worker sends.
#pragma once

#include <cstdint>

#include "gen/notices.gen.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::exec {

// Nothing but the kind: the caller fills in what else the notice says.
inline wire::FrameHeader NoticeHeader(wire::Notice notice) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kNotice;
  header.opcode = static_cast<uint16_t>(notice);
  return header;
}

// A notice about an earlier command, which asks the client to do something. The client does it when
// `deliveries` delivery frames have landed.
inline wire::FrameHeader NoticeAbout(const wire::FrameHeader& command, wire::Notice notice,
                                     uint64_t deliveries) {
  wire::FrameHeader header = NoticeHeader(notice);
  header.seq = command.seq;
  header.watermark = deliveries;
  header.thread = command.thread;
  header.context = command.context;
  return header;
}

}  // namespace rgpu::exec
