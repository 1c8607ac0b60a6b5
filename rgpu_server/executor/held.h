// Commands that wait for the gate: copies of their frames, in order, bounded.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/command.h"

namespace rgpu::exec {

class Held {
 public:
  struct Entry {
    const OpcodeInfo* info = nullptr;
    wire::FrameHeader header;
    std::vector<uint8_t> head;
    std::vector<uint8_t> own_bulk;  // if it is not in staging memory
    wire::ByteView bulk;
    std::shared_ptr<const void> keep;
  };

  bool empty() const { return entries_.empty(); }
  // No more is read from the client until some of these have gone.
  bool full() const { return entries_.size() >= kMostEntries || bytes_ >= kMostBytes; }
  // `bulk` is taken over if the command's bulk lies in it.
  void Add(const OpcodeInfo& info, const Command& command, std::vector<uint8_t>* bulk);
  // Whether a command that comes now need not stay behind these: it asks for nothing that they
  // change.
  bool MayPass(const OpcodeInfo& info, const Command& command) const;

  const OpcodeInfo& front_info() const { return *entries_.front().info; }
  // Points into the entry.
  Command front() const;
  Entry Take();

 private:
  static constexpr size_t kMostEntries = 4096;
  static constexpr uint64_t kMostBytes = 8U << 20;

  static uint64_t EventOf(const OpcodeInfo& info, wire::ByteView head);

  std::deque<Entry> entries_;
  uint64_t bytes_ = 0;
  std::unordered_map<uint64_t, uint32_t> events_;  // that these create, record or destroy
};

}  // namespace rgpu::exec
