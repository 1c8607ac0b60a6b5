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

struct Place {
  std::atomic<Session*> session{nullptr};
  std::atomic<bool> started{false};
  // 1: the keeper looks by itself; 0: it sleeps, and Need must wake it.
  std::atomic<uint32_t> awake{0};

  uint64_t Uses() const {
    Session* const now = session.load();
    return now == nullptr ? 0 : now->memory_credit().uses();
  }
};

std::array<Place, kMostSessions> g_places{};  // by session

}  // namespace

bool CreditKeeper::Need(Session* session) {
  Place& place = g_places[session->number()];
  place.session.store(session, std::memory_order_relaxed);
  // An exchange, not a load: it is ordered with the keeper's last look before it sleeps.
  if (place.awake.exchange(1) != 0) return true;
  if (place.started.exchange(true)) {
    place.awake.notify_one();
    return true;
  }
  if (StartServiceThread("rgpu-credit", &CreditKeeper::Run, &place)) return true;
  place.started = false;
  place.awake = 0;
  return false;
}

void CreditKeeper::Forget() {
  for (Place& place : g_places) {
    place.session = nullptr;
    place.started = false;
    place.awake = 0;
  }
}

void CreditKeeper::Run(void* argument) {
  Place& place = *static_cast<Place*>(argument);
  uint64_t seen = 0;
  int idle = 0;
  while (true) {
    const timespec pause{0, kTickNs};
    nanosleep(&pause, nullptr);
    Session& session = *place.session.load();
    session.channel().Poll();
    const uint64_t uses = place.Uses();
    idle = uses == seen ? idle + 1 : 0;
    seen = uses;
    if (idle < kIdleTicks) continue;
    session.ReturnCredit();
    if (session.memory_credit().active()) continue;  // a free is under way
    place.awake.store(0);
    // Look once more: an allocation or a free since the last look has not woken the keeper.
    if (place.Uses() != seen && place.awake.exchange(1) == 0) continue;
    place.awake.wait(0);
    idle = 0;
  }
}

}  // namespace rgpu::shim
