// The streams whose work may write memory that the program reads: which of it may still run.
#pragma once

#include <cstdint>
#include <vector>

namespace rgpu::shim {

class Session;
struct Here;

class WorkLog {
 public:
  // Called before such a command is posted to here.stream.
  void Note(const Here& here);
  // False: this process knows that all the commands are complete.
  bool Outstanding(Session& session);

 private:
  struct Entry {
    uint32_t context = 0;
    uint32_t thread = 0;
    uint64_t stream = 0;   // its name on the wire
    uint64_t version = 0;  // the stream's version before the command
  };
  // The work of destroyed streams of one context.
  struct Gone {
    uint32_t context = 0;
    uint64_t upto = 0;  // no such command comes behind this one
  };
  enum class State : uint8_t { kComplete, kOutstanding, kGone };
  static State StateOf(Session& session, const Entry& entry);
  void AddGone(Session& session, uint32_t context);

  std::vector<Entry> entries_;  // one for each stream
  std::vector<Gone> gone_;      // one for each context
};

}  // namespace rgpu::shim
