// Commands that the gate holds back: copies of their frames, in order, up to a limit.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/salted_hash.h"

namespace rgpu::exec {

class Held {
 public:
  struct Entry {
    const OpcodeInfo* info = nullptr;
    wire::FrameHeader header;
    std::vector<uint8_t> head;
    std::vector<uint8_t> own_bulk;  // the bulk, if it is not in staging memory
    wire::ByteView bulk;
    std::shared_ptr<const void> keep;
    bool any_event = false;
  };

  bool empty() const { return entries_.empty(); }
  // While the queue is full, the decoder reads nothing more from the client.
  bool full() const { return entries_.size() >= kMostEntries || bytes_ >= kMostBytes; }
  // Takes over the buffer `bulk` if the command's bulk lies in it. `any_event`: the command may
  // concern any event.
  void Add(const OpcodeInfo& info, const Command& command, std::vector<uint8_t>* bulk,
           bool any_event);
  // Returns true if a new command may run before the held ones: its class passes the gate, and no
  // held command concerns the same event.
  bool MayPass(const OpcodeInfo& info, const Command& command) const;

  const OpcodeInfo& front_info() const { return *entries_.front().info; }
  // The result points into the held entry.
  Command front() const;
  Entry Take();

 private:
  static constexpr size_t kMostEntries = 4096;
  static constexpr uint64_t kMostBytes = 8U << 20;

  std::deque<Entry> entries_;
  uint64_t bytes_ = 0;
  // Events that held commands create, record or destroy, with the number of such commands.
  std::unordered_map<uint64_t, uint32_t, SaltedHash> events_;
  uint32_t any_event_ = 0;  // held commands that may concern any event
};

}  // namespace rgpu::exec
