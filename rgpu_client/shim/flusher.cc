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

std::array<std::atomic<Channel*>, kMostSessions> g_channels{};  // by session
std::atomic<bool> g_started{false};
// 1: the flusher looks at the buffer on its own; 0: it sleeps, and Arm must wake it.
std::atomic<uint32_t> g_awake{0};

}  // namespace

bool Flusher::Arm(Channel* channel) {
  g_channels[channel->session_].store(channel, std::memory_order_relaxed);
  // An exchange, not a load: it is ordered with the flusher's last look before it sleeps, and a
  // load could still see 1 when the flusher has gone to sleep.
  if (g_awake.exchange(1) != 0) return true;
  if (g_started.exchange(true)) {
    g_awake.notify_one();
    return true;
  }
  if (StartServiceThread("rgpu-flush", &Flusher::Run)) return true;
  g_started = false;
  g_awake = 0;
  return false;
}

void Flusher::Forget() {
  for (auto& channel : g_channels) channel = nullptr;
  g_started = false;
  g_awake = 0;
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

bool Flusher::FlushAllOld() {
  bool any = false;
  for (const auto& channel : g_channels) any = FlushOld(channel.load()) || any;
  return any;
}

void Flusher::Run() {
  prctl(PR_SET_TIMERSLACK, 1000UL);
  uint64_t last_busy = base::NowNs();
  while (true) {
    const timespec pause{0, kDelayNs};
    nanosleep(&pause, nullptr);
    const uint64_t now = base::NowNs();
    if (FlushAllOld()) last_busy = now;
    if (now - last_busy < kQuietNs) continue;
    g_awake.store(0);
    // Look once more: a command buffered between the last look and the store has not woken the
    // flusher.
    if (FlushAllOld() && g_awake.exchange(1) == 0) continue;
    g_awake.wait(0);
    last_busy = base::NowNs();
  }
}

}  // namespace rgpu::shim
