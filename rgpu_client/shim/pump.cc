#include "rgpu_client/shim/pump.h"

#include <time.h>

#include <array>
#include <atomic>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/service_thread.h"

namespace rgpu::shim {
namespace {

// How long the pump sleeps when another thread is reading.
constexpr long kStepAsideNs = 200'000;

struct Place {
  std::atomic<Channel*> channel{nullptr};
  std::atomic<bool> started{false};
  std::atomic<uint32_t> needs{0};  // counts calls of Need
};

std::array<Place, kMostSessions> g_places{};  // by session

}  // namespace

void Pump::Need(Channel* channel) {
  Place& place = g_places[channel->session_];
  place.channel.store(channel);
  place.needs.fetch_add(1);
  if (place.started.load(std::memory_order_relaxed)) {
    place.needs.notify_one();
  } else if (!place.started.exchange(true) &&
             !StartServiceThread("rgpu-pump", &Pump::Run, &place)) {
    place.started = false;  // without a pump, the application's next wait or poll reads
  }
}

void Pump::Wake(const Channel& channel) {
  Place& place = g_places[channel.session_];
  place.needs.fetch_add(1);
  place.needs.notify_one();
}

void Pump::Forget() {
  for (Place& place : g_places) {
    place.channel = nullptr;
    place.started = false;
  }
}

void Pump::Run(void* argument) {
  Place& place = *static_cast<Place*>(argument);
  while (true) {
    const uint32_t needs = place.needs.load();
    Channel* channel = place.channel.load();
    if (channel == nullptr || channel->sticky() != CUDA_SUCCESS || !channel->expects_deliveries()) {
      place.needs.wait(needs);
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
