#include "rgpu_client/shim/sessions.h"

#include <algorithm>
#include <atomic>

#include "rgpu_client/shim/thread_state.h"

namespace rgpu::shim {
namespace {

// By number. Places without a session lead to the first one, so that a lookup needs no check.
constinit std::array<std::atomic<Session*>, kMostSessions> g_sessions{};
constinit std::atomic<unsigned> g_count{0};

Session* At(unsigned number) { return g_sessions[number].load(std::memory_order_acquire); }

Session* OfThread() {
  const auto& stack = ThisThread().stack;
  return stack.empty() || stack.back() == nullptr ? At(0) : SessionOfContext(stack.back()->id);
}

bool Knows(Session& session, uint64_t address) {
  return session.IsDeviceAddress(address) || session.addresses().Find(address).has_value();
}

}  // namespace

SessionList LiveSessions() {
  SessionList list;
  const unsigned count = g_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) list.Add(At(i));
  return list;
}

bool IsOpen(const Session* session) {
  const SessionList list = LiveSessions();
  return std::find(list.begin(), list.end(), session) != list.end();
}

Session* CurrentSession() {
  if (g_count.load(std::memory_order_acquire) > 1) [[unlikely]]
    return OfThread();
  return At(0);
}

Session* SessionOf(uint64_t handle) { return At(SessionNumber(handle)); }
Session* SessionOfContext(uint64_t context) { return At(SessionNumberOfContext(context)); }

Session* SessionOfDevice(CUdevice device) {
  const Device* found = At(0)->devices().Find(device);
  return At(found == nullptr ? 0 : found->session);
}

Session* SessionOfAddress(uint64_t address) {
  const SessionList list = LiveSessions();
  if (list.size() < 2) return At(0);
  const auto knows = [&](Session* session) { return Knows(*session, address); };
  const auto* const found = std::find_if(list.begin(), list.end(), knows);
  return found == list.end() ? CurrentSession() : *found;
}

void PublishSessions(const std::vector<Session*>& sessions) {
  for (unsigned i = 0; i < kMostSessions; ++i) {
    g_sessions[i].store(sessions[i < sessions.size() ? i : 0], std::memory_order_release);
  }
  g_count.store(static_cast<unsigned>(sessions.size()), std::memory_order_release);
}

SessionList WithdrawSessions() {
  const SessionList list = LiveSessions();
  g_count.store(0);
  for (auto& place : g_sessions) place.store(nullptr);
  return list;
}

}  // namespace rgpu::shim
