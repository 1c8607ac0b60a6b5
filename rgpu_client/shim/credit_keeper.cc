#include "rgpu_client/shim/credit_keeper.h"

#include <time.h>

#include <array>
#include <atomic>

#include "rgpu_client/shim/service_thread.h"
#include "rgpu_client/shim/session.h"

namespace rgpu::shim {
namespace {

// How soon the worker gets back what it asks for.
constexpr long kTickNs = 5'000'000;
// Credit that is not used for so many ticks goes back.
constexpr int kIdleTicks = 20;

std::array<std::atomic<Session*>, kMostSessions> g_sessions{};  // by number
std::atomic<bool> g_started{false};
// 1: the keeper looks by itself; 0: it sleeps, and Need must wake it.
std::atomic<uint32_t> g_awake{0};

template <typename Act>
void ForEach(Act act) {
  for (const auto& place : g_sessions) {
    if (Session* const session = place.load()) act(*session);
  }
}

uint64_t Uses() {
  uint64_t uses = 0;
  ForEach([&](Session& session) { uses += session.memory_credit().uses(); });
  return uses;
}

}  // namespace

bool CreditKeeper::Need(Session* session) {
  g_sessions[session->number()].store(session, std::memory_order_relaxed);
  // An exchange, not a load: it is ordered with the keeper's last look before it sleeps.
  if (g_awake.exchange(1) != 0) return true;
  if (g_started.exchange(true)) {
    g_awake.notify_one();
    return true;
  }
  if (StartServiceThread("rgpu-credit", &CreditKeeper::Run)) return true;
  g_started = false;
  g_awake = 0;
  return false;
}

void CreditKeeper::Forget() {
  for (auto& session : g_sessions) session = nullptr;
  g_started = false;
  g_awake = 0;
}

void CreditKeeper::Run() {
  uint64_t seen = 0;
  int idle = 0;
  while (true) {
    const timespec pause{0, kTickNs};
    nanosleep(&pause, nullptr);
    ForEach([](Session& session) { session.channel().Poll(); });
    const uint64_t uses = Uses();
    idle = uses == seen ? idle + 1 : 0;
    seen = uses;
    if (idle < kIdleTicks) continue;
    bool active = false;
    ForEach([&](Session& session) {
      session.ReturnCredit();
      active = session.memory_credit().active() || active;
    });
    if (active) continue;  // a free is under way
    g_awake.store(0);
    // Look once more: an allocation or a free since the last look has not woken the keeper.
    if (Uses() != seen && g_awake.exchange(1) == 0) continue;
    g_awake.wait(0);
    idle = 0;
  }
}

}  // namespace rgpu::shim
