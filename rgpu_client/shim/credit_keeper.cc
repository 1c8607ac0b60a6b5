#include "rgpu_client/shim/credit_keeper.h"

#include <time.h>

#include <atomic>

#include "rgpu_client/shim/service_thread.h"
#include "rgpu_client/shim/session.h"

namespace rgpu::shim {
namespace {

// How soon the worker gets back what it asks for.
constexpr long kTickNs = 5'000'000;
// Credit that is not used for so many ticks goes back.
constexpr int kIdleTicks = 20;

std::atomic<Session*> g_session{nullptr};
std::atomic<bool> g_started{false};
// 1: the keeper looks by itself; 0: it sleeps, and Need must wake it.
std::atomic<uint32_t> g_awake{0};

}  // namespace

bool CreditKeeper::Need(Session* session) {
  g_session.store(session, std::memory_order_relaxed);
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
  g_session = nullptr;
  g_started = false;
  g_awake = 0;
}

void CreditKeeper::Run() {
  uint64_t seen = 0;
  int idle = 0;
  while (true) {
    const timespec pause{0, kTickNs};
    nanosleep(&pause, nullptr);
    Session& session = *g_session.load();
    session.channel().Poll();
    const uint64_t uses = session.memory_credit().uses();
    idle = uses == seen ? idle + 1 : 0;
    seen = uses;
    if (idle < kIdleTicks) continue;
    session.ReturnCredit();
    if (session.memory_credit().active()) continue;  // a free is under way
    g_awake.store(0);
    // Look once more: an allocation or a free since the last look has not woken the keeper.
    if (session.memory_credit().uses() != seen && g_awake.exchange(1) == 0) continue;
    g_awake.wait(0);
    idle = 0;
  }
}

}  // namespace rgpu::shim
