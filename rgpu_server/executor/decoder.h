// The command lane: frames in, replies out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gen/opcodes.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/held.h"

namespace rgpu::exec {

class Decoder {
 public:
  // `ended`: called once with the reason when the lane ends or breaks the rules.
  Decoder(Executor& executor, transport::FrameReader& reader,
          std::function<void(const std::string&)> ended)
      : executor_(executor), reader_(reader), ended_(std::move(ended)) {}
  void Start();

 private:
  // What one thread keeps from frame to frame.
  struct Scratch {
    std::vector<uint8_t> head;
    std::vector<uint8_t> bulk;
    std::vector<uint8_t> reply;
    transport::FrameBuffer out;
  };

  void ThreadMain();
  // False: the role is gone or the lane has ended.
  bool Step(Scratch& scratch);
  bool Handle(Scratch& scratch, const wire::FrameHeader& header, wire::ByteView head);
  bool Execute(Scratch& scratch, const OpcodeInfo& info, Command& command);
  // Whether the command has to stay behind what is held back, or is device work whose turn it is
  // not.
  bool MustHold(const OpcodeInfo& info, const Command& command);
  void Hold(Scratch& scratch, const OpcodeInfo& info, const Command& command);
  // Executes the oldest command that is held back, if it may go.  False: it may not.
  bool TryHeld(Scratch& scratch, bool* go_on);
  // What is to be read next, or kWoken: what is held back may go.
  transport::ReadState Read(Scratch& scratch, wire::FrameHeader* header, wire::ByteView* head);
  bool MayRun(const OpcodeInfo& info) const;
  CUresult TooManyCalls();
  bool HandleCall(Scratch& scratch, const OpcodeInfo& info, Command& command);
  void HandlePosted(const OpcodeInfo& info, Command& command);
  bool ReceiveBulk(Scratch& scratch, const OpcodeInfo& info, Command* command);
  void FindPlace(Command* command, Piece* piece);
  // The thread's deferred error, if the call reports it.
  CUresult Deferred(const OpcodeInfo& info, const Command& command);
  void Reply(Scratch& scratch, const Command& command, CUresult status, uint64_t behind);
  // Before the thread sleeps: what the client may be waiting for goes out.
  void Idle(Scratch& scratch);
  void Malformed(const wire::FrameHeader& header, const std::string& sentence);
  void End(const std::string& reason);

  Executor& executor_;
  transport::FrameReader& reader_;
  std::function<void(const std::string&)> ended_;
  uint64_t last_seq_ = 0;
  uint64_t acked_seq_ = 0;
  bool more_follow_ = false;  // in the middle of a copy: an ACK would only wake the client
  bool rest_ = false;         // work is on the device that no marker stands behind
  Held held_;
  std::atomic<bool> over_{false};
};

}  // namespace rgpu::exec
