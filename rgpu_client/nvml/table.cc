#include "rgpu_client/nvml/table.h"

#include <array>
#include <utility>

#include "rgpu_client/shim/tables/handles.h"

namespace rgpu::nvml {
namespace {

constexpr int kDeadlineMs = 5000;
constexpr uint64_t kWindowUs = 1'000'000;
constexpr auto kFresh = std::chrono::milliseconds(100);
// After a failure. A refused connection fails at once; a silent server costs the whole deadline.
constexpr auto kPause = std::chrono::milliseconds(200);
constexpr auto kLongPause = std::chrono::milliseconds(2000);
// For all servers of a program together.
constexpr auto kSearch = std::chrono::milliseconds(8000);

// Its addresses are the handles.
std::array<char, shim::kMostSessions> g_places{};

uint64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace

Device::Device(shim::Settings settings, unsigned place)
    : settings_(std::move(settings)), place_(place) {}

View Device::Look(Age age) {
  const std::lock_guard lock(mutex_);
  const bool any = age == Age::kAnyAge;
  if ((sights_.empty() || !any) && Clock::now() >= good_until_) AskNow();
  View view;
  view.place = place_;
  view.status = any && !sights_.empty() ? NVML_SUCCESS : status_;
  if (!sights_.empty()) view.now = sights_.back();
  if (sights_.size() > 1) view.before = sights_.front();
  return view;
}

void Device::AskNow() {
  const auto begin = Clock::now();
  Answer answer = Ask(settings_, kDeadlineMs);
  const auto end = Clock::now();
  status_ = answer.status;
  sentence_ = std::move(answer.sentence);
  if (status_ != NVML_SUCCESS) {
    good_until_ = end + (end - begin > kPause ? kLongPause : kPause);
    return;
  }
  sights_.push_back({std::move(answer.observed), NowUs()});
  while (sights_.size() > 1 && sights_[1].at_us + kWindowUs <= sights_.back().at_us) {
    sights_.pop_front();
  }
  good_until_ = end + kFresh;
}

std::string Device::sentence() {
  const std::lock_guard lock(mutex_);
  return sentence_;
}

Table::Table(const shim::Settings& settings) {
  for (size_t i = 0; i < settings.devices.size() && i < g_places.size(); ++i) {
    devices_.push_back(
        std::make_unique<Device>(shim::SettingsOfDevice(settings, i), static_cast<unsigned>(i)));
  }
}

View Table::First(Age age) {
  View first;
  first.status = NVML_ERROR_GPU_NOT_FOUND;
  const auto end = std::chrono::steady_clock::now() + kSearch;
  for (size_t i = 0; i < size() && std::chrono::steady_clock::now() < end; ++i) {
    View view = at(i).Look(age);
    if (view.status == NVML_SUCCESS) return view;
    if (i == 0) first = std::move(view);
  }
  return first;
}

nvmlDevice_t HandleOf(size_t place) { return reinterpret_cast<nvmlDevice_t>(&g_places[place]); }

int PlaceOf(nvmlDevice_t handle) {
  const auto address = reinterpret_cast<uintptr_t>(handle);
  const auto begin = reinterpret_cast<uintptr_t>(g_places.data());
  return address - begin < g_places.size() ? static_cast<int>(address - begin) : -1;
}

}  // namespace rgpu::nvml
