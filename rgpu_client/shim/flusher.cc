#include "rgpu_client/shim/flusher.h"

#include <sys/prctl.h>
#include <time.h>

#include <atomic>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/service_thread.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {
namespace {

constexpr long kDelayNs = 50'000;
constexpr uint64_t kQuietNs = 1'000'000;

std::atomic<Channel*> g_channel{nullptr};
std::atomic<bool> g_started{false};
// 1: the thread looks by itself; 0: it sleeps and must be woken.
std::atomic<uint32_t> g_awake{0};

}  // namespace

bool Flusher::Arm(Channel* channel) {
  g_channel.store(channel, std::memory_order_relaxed);
  // In one order with the thread's last look before it sleeps: a mere load could miss its going.
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
  g_channel = nullptr;
  g_started = false;
  g_awake = 0;
}

// True if something was or is buffered.
bool Flusher::FlushOld(Channel* channel) {
  const uint64_t since = channel->buffered_since_ns_.load(std::memory_order_relaxed);
  if (since == 0) return false;
  const bool full = channel->buffer_full_.load(std::memory_order_relaxed);
  if (full || base::NowNs() - since >= static_cast<uint64_t>(kDelayNs)) channel->Flush();
  return true;
}

void Flusher::Run() {
  prctl(PR_SET_TIMERSLACK, 1000UL);
  uint64_t last_busy = base::NowNs();
  while (true) {
    const timespec pause{0, kDelayNs};
    nanosleep(&pause, nullptr);
    const uint64_t now = base::NowNs();
    if (FlushOld(g_channel.load())) last_busy = now;
    if (now - last_busy < kQuietNs) continue;
    g_awake.store(0);
    // A command buffered between the last look and the store has not woken anybody.
    if (FlushOld(g_channel.load()) && g_awake.exchange(1) == 0) continue;
    g_awake.wait(0);
    last_busy = base::NowNs();
  }
}

}  // namespace rgpu::shim
