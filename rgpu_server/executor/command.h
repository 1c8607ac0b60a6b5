// One decoded frame of the command lane, as the handlers see it.
#pragma once

#include <memory>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::exec {

class Executor;

// What Dispatch answers besides a CUresult; never travels.
// The head does not decode or the opcode is unknown: ends the session.
inline constexpr CUresult kMalformed = static_cast<CUresult>(1022);
// A posted command that names an object whose creation failed: the first cause is kept, this is
// nothing.
inline constexpr CUresult kDropped = static_cast<CUresult>(1023);

struct Command {
  wire::FrameHeader header;
  wire::ByteView head;               // valid while the handler runs
  wire::ByteView bulk;               // valid while the handler runs, and as long as `keep` is held
  std::shared_ptr<const void> keep;  // null: the bulk is not in staging memory
  transport::FrameBuffer* out = nullptr;  // of calls: frames that go out in front of the reply
  bool in_place = false;                  // the bulk lies where the copy brings it
  // Of calls: what the reply comes behind in the outbox; everything unless the handler knows
  // better.
  uint64_t* behind = nullptr;
};

}  // namespace rgpu::exec
