#include "rgpu_client/shim/pump.h"

#include <time.h>

#include <atomic>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/service_thread.h"

namespace rgpu::shim {
namespace {

// How long the pump sleeps when another thread is reading.
constexpr long kStepAsideNs = 200'000;

std::atomic<Channel*> g_channel{nullptr};
std::atomic<bool> g_started{false};
std::atomic<uint32_t> g_needs{0};  // counts calls of Need

}  // namespace

void Pump::Need(Channel* channel) {
  g_channel.store(channel);
  g_needs.fetch_add(1);
  if (g_started.load(std::memory_order_relaxed)) {
    g_needs.notify_one();
  } else if (!g_started.exchange(true) && !StartServiceThread("rgpu-pump", &Pump::Run)) {
    g_started = false;  // without a pump, the application's next wait or poll reads
  }
}

void Pump::Wake() {
  g_needs.fetch_add(1);
  g_needs.notify_one();
}

void Pump::Forget() {
  g_channel = nullptr;
  g_started = false;
}

void Pump::Run() {
  while (true) {
    const uint32_t needs = g_needs.load();
    Channel* channel = g_channel.load();
    if (channel == nullptr || channel->sticky() != CUDA_SUCCESS || !channel->expects_deliveries()) {
      g_needs.wait(needs);
      continue;
    }
    const int events = channel->connection_->Wait(transport::kReadable, 1000);
    if (events != 0 && !channel->ReadWithoutBlocking()) {
      // Another thread is reading. The pump leaves the connection to that thread for a while.
      const timespec pause{0, kStepAsideNs};
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace rgpu::shim
