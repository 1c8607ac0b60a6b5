// The sessions of the process: one for each device. A process with one device has one, number 0.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/session.h"

namespace rgpu::shim {

// A snapshot of the open sessions, in the order of their numbers.
class SessionList {
 public:
  void Add(Session* session) { at_[count_++] = session; }
  Session* const* begin() const { return at_.data(); }
  Session* const* end() const { return at_.data() + count_; }
  unsigned size() const { return count_; }

 private:
  std::array<Session*, kMostSessions> at_{};
  unsigned count_ = 0;
};

SessionList LiveSessions();
bool IsOpen(const Session* session);

// The session of the calling thread's current context, or else the first one. Null before a session
// is open, so never in the body of a function with kNeedsInit. The same holds for the others.
Session* CurrentSession();
// The session whose number a handle holds. A number that no handle has leads to the first session,
// which does not know it.
Session* SessionOf(uint64_t handle);
// The same for the handle of a context.
Session* SessionOfContext(uint64_t context);
Session* SessionOfDevice(CUdevice device);
// The session in which the address is known, or else the current one.
Session* SessionOfAddress(uint64_t address);

// For runtime.cc, which opens the sessions and gives them up.
void PublishSessions(const std::vector<Session*>& sessions);
SessionList WithdrawSessions();

}  // namespace rgpu::shim
