// One decoded frame of the command lane, as handlers get it.
#pragma once

#include <memory>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::exec {

class Executor;

// Results that Dispatch returns besides CUresult values. They are never sent to the client.
// The head does not decode or the opcode is unknown. The session ends.
inline constexpr CUresult kMalformed = static_cast<CUresult>(1022);
// A posted command names an object whose creation failed. The command is skipped without an error
// of its own, because the error of the creation is kept already.
inline constexpr CUresult kDropped = static_cast<CUresult>(1023);

struct Command {
  wire::FrameHeader header;
  wire::ByteView head;  // valid while the handler runs
  wire::ByteView bulk;  // valid as long as `keep` is held, at least while the handler runs
  std::shared_ptr<const void> keep;       // null: the bulk is not in staging memory
  transport::FrameBuffer* out = nullptr;  // for calls: frames to send before the reply
  bool in_place = false;                  // the bulk was received directly at its destination
  // For calls: the number of delivery frames that the outbox sends before the reply. The default is
  // all of them; a handler that knows better sets a smaller number.
  uint64_t* behind = nullptr;
};

}  // namespace rgpu::exec
