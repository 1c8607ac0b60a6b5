#include "rgpu_client/shim/pump.h"

#include <time.h>

#include <array>
#include <atomic>
#include <vector>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/service_thread.h"

namespace rgpu::shim {
namespace {

// How long the pump sleeps when another thread is reading.
constexpr long kStepAsideNs = 200'000;
// How long it waits for one connection: if it is the only one, and if there are several.
constexpr int kAloneMs = 1000;
constexpr int kTurnMs = 1;

std::array<std::atomic<Channel*>, kMostSessions> g_channels{};  // by session
std::atomic<bool> g_started{false};
std::atomic<uint32_t> g_needs{0};  // counts calls of Need

}  // namespace

void Pump::Need(Channel* channel) {
  g_channels[channel->session_].store(channel);
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
  for (auto& channel : g_channels) channel = nullptr;
  g_started = false;
}

void Pump::ReadOne(Channel* channel, int wait_ms) {
  const int events = channel->connection_->Wait(transport::kReadable, wait_ms);
  if (events != 0 && !channel->ReadWithoutBlocking()) {
    // Another thread is reading. The pump leaves the connection to that thread for a while.
    const timespec pause{0, kStepAsideNs};
    nanosleep(&pause, nullptr);
  }
}

void Pump::Run() {
  std::vector<Channel*> busy;
  while (true) {
    const uint32_t needs = g_needs.load();
    int known = 0;
    busy.clear();
    for (const auto& place : g_channels) {
      Channel* const channel = place.load();
      if (channel == nullptr) continue;
      ++known;
      if (channel->sticky() == CUDA_SUCCESS && channel->expects_deliveries()) {
        busy.push_back(channel);
      }
    }
    if (busy.empty()) {
      g_needs.wait(needs);
      continue;
    }
    for (Channel* const channel : busy) ReadOne(channel, known > 1 ? kTurnMs : kAloneMs);
  }
}

}  // namespace rgpu::shim
