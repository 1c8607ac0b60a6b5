#include "rgpu_client/shim/flusher.h"

#include <sys/prctl.h>
#include <time.h>

#include <array>
#include <atomic>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/service_thread.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {
namespace {

constexpr long kDelayNs = 50'000;
constexpr uint64_t kQuietNs = 1'000'000;

struct Place {
  std::atomic<Channel*> channel{nullptr};
  std::atomic<bool> started{false};
  // 1: the flusher looks at the buffer on its own; 0: it sleeps, and Arm must wake it.
  std::atomic<uint32_t> awake{0};
};

std::array<Place, kMostSessions> g_places{};  // by session

}  // namespace

bool Flusher::Arm(Channel* channel) {
  Place& place = g_places[channel->session_];
  place.channel.store(channel, std::memory_order_relaxed);
  // An exchange, not a load: it is ordered with the flusher's last look before it sleeps, and a
  // load could still see 1 when the flusher has gone to sleep.
  if (place.awake.exchange(1) != 0) return true;
  if (place.started.exchange(true)) {
    place.awake.notify_one();
    return true;
  }
  if (StartServiceThread("rgpu-flush", &Flusher::Run, &place)) return true;
  place.started = false;
  place.awake = 0;
  return false;
}

void Flusher::Forget() {
  for (Place& place : g_places) {
    place.channel = nullptr;
    place.started = false;
    place.awake = 0;
  }
}

// Flushes the buffer if it is old enough or full. True if there was anything in it.
bool Flusher::FlushOld(Channel* channel) {
  if (channel == nullptr) return false;
  const uint64_t since = channel->buffered_since_ns_.load(std::memory_order_relaxed);
  if (since == 0) return false;
  const bool full = channel->buffer_full_.load(std::memory_order_relaxed);
  if (full || base::NowNs() - since >= static_cast<uint64_t>(kDelayNs)) channel->Flush();
  return true;
}

void Flusher::Run(void* argument) {
  Place& place = *static_cast<Place*>(argument);
  prctl(PR_SET_TIMERSLACK, 1000UL);
  uint64_t last_busy = base::NowNs();
  while (true) {
    const timespec pause{0, kDelayNs};
    nanosleep(&pause, nullptr);
    const uint64_t now = base::NowNs();
    if (FlushOld(place.channel.load())) last_busy = now;
    if (now - last_busy < kQuietNs) continue;
    place.awake.store(0);
    // Look once more: a command buffered between the last look and the store has not woken the
    // flusher.
    if (FlushOld(place.channel.load()) && place.awake.exchange(1) == 0) continue;
    place.awake.wait(0);
    last_busy = base::NowNs();
  }
}

}  // namespace rgpu::shim
