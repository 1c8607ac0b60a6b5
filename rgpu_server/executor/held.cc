#include "rgpu_server/executor/held.h"

#include <utility>

#include "gen/work.gen.h"

namespace rgpu::exec {

void Held::Add(const OpcodeInfo& info, const Command& command, std::vector<uint8_t>* bulk,
               bool any_event) {
  Entry entry;
  entry.info = &info;
  entry.header = command.header;
  entry.head.assign(command.head.data, command.head.data + command.head.size);
  entry.bulk = command.bulk;
  entry.keep = command.keep;
  if (command.keep == nullptr && command.bulk.size > 0) {
    entry.own_bulk.swap(*bulk);
    entry.bulk = wire::Bytes(entry.own_bulk.data(), command.bulk.size);
  }
  bytes_ += entry.head.size() + entry.own_bulk.size();
  if (const uint64_t event = EventOf(info.opcode, command.head); event != 0) ++events_[event];
  entry.any_event = any_event;
  any_event_ += any_event ? 1 : 0;
  entries_.push_back(std::move(entry));
}

bool Held::MayPass(const OpcodeInfo& info, const Command& command) const {
  if (!info.passes_gate) return false;
  const uint64_t event = EventOf(info.opcode, command.head);
  return event == 0 || (any_event_ == 0 && !events_.contains(event));
}

Command Held::front() const {
  const Entry& entry = entries_.front();
  Command command;
  command.header = entry.header;
  command.head = wire::Bytes(entry.head.data(), entry.head.size());
  command.bulk = entry.bulk;
  command.keep = entry.keep;
  return command;
}

Held::Entry Held::Take() {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= entry.head.size() + entry.own_bulk.size();
  any_event_ -= entry.any_event ? 1 : 0;
  const uint64_t event =
      EventOf(entry.info->opcode, wire::Bytes(entry.head.data(), entry.head.size()));
  if (const auto found = events_.find(event); found != events_.end() && --found->second == 0) {
    events_.erase(found);
  }
  return entry;
}

}  // namespace rgpu::exec
