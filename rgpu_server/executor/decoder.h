// Reads frames from the command lane, runs them and sends the replies.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "gen/opcodes.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/held.h"

namespace rgpu::exec {

class Decoder {
 public:
  // `ended` is called once, with the reason, when the lane ends or the client breaks the protocol.
  Decoder(Executor& executor, transport::FrameReader& reader,
          std::function<void(const std::string&)> ended)
      : executor_(executor), reader_(reader), ended_(std::move(ended)) {}
  void Start();

 private:
  // Buffers that one thread uses again for each frame.
  struct Scratch {
    std::vector<uint8_t> head;
    std::vector<uint8_t> bulk;
    std::vector<uint8_t> reply;
    transport::FrameBuffer out;
  };

  void ThreadMain();
  // Handles one frame or one held command. Returns false if this thread has lost the role or the
  // lane has ended.
  bool Step(Scratch& scratch);
  bool Handle(Scratch& scratch, const wire::FrameHeader& header, wire::ByteView head);
  using Lock = std::unique_lock<std::mutex>;
  bool ExecuteOrHold(Scratch& scratch, const OpcodeInfo& info, Command& command);
  // `lock` is held since the gate admitted the command, so that the token cannot be given back
  // between the admission and the moment at which the command's work is on the device.
  bool Execute(Scratch& scratch, const OpcodeInfo& info, Command& command, Lock& lock);
  // Returns true if the command must be held back: it has to stay after held commands, or it is
  // device work that the gate does not admit now. Called with the lock.
  bool MustHold(const OpcodeInfo& info, const Command& command);
  bool Admits(const Command& command);
  // Executes the oldest held command if the gate admits it; returns false if not.
  bool TryHeld(Scratch& scratch, bool* go_on);
  // True while nothing may be put into streams; while nothing may be read from the client.
  bool QueueIsFull();
  bool PagesWait();
  // Reads the next frame. kWoken means that the gate may admit held commands now.
  transport::ReadState Read(Scratch& scratch, wire::FrameHeader* header, wire::ByteView* head);
  bool MayRun(const OpcodeInfo& info) const;
  CUresult TooManyCalls();
  bool HandleCall(Scratch& scratch, const OpcodeInfo& info, Command& command, Lock& lock);
  // Runs a call's handler, and returns the status of the reply. Called with the lock.
  CUresult RunCall(const OpcodeInfo& info, const Command& command, wire::Writer* reply);
  void HandlePosted(const OpcodeInfo& info, Command& command, Lock& lock);
  bool ReceiveBulk(Scratch& scratch, const OpcodeInfo& info, Command* command);
  void FindPlace(const OpcodeInfo& info, Command* command, Piece* piece);
  // Returns the thread's deferred error if the call reports deferred errors.
  CUresult Deferred(const OpcodeInfo& info, const Command& command);
  void Reply(Scratch& scratch, const Command& command, CUresult status, uint64_t behind);
  // Called before the thread sleeps: sends what the client may wait for (notices, an ACK).
  void Idle(Scratch& scratch);
  void Malformed(const wire::FrameHeader& header, const std::string& sentence);
  void End(const std::string& reason);

  Executor& executor_;
  transport::FrameReader& reader_;
  std::function<void(const std::string&)> ended_;
  uint64_t last_seq_ = 0;
  uint64_t acked_seq_ = 0;
  // The last frame was a piece of a copy that goes on: an ACK now would only wake the client.
  bool more_follow_ = false;
  bool rest_ = false;  // work that no marker follows is on the device
  bool pages_wait_ = false;
  Held held_;
  std::atomic<bool> over_{false};
};

}  // namespace rgpu::exec
