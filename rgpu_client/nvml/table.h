// The devices of the program, one for each that RGPU_DEVICE names, and what their servers said.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gen/handshake.gen.h"
#include "gen/nvml_abi.gen.h"
#include "rgpu_client/nvml/ask.h"

namespace rgpu::nvml {

enum class Age : uint8_t {
  kAnyAge,  // what does not change: any answer is good
  kNow,     // the server has answered within the last tenth of a second
};
inline constexpr Age kAnyAge = Age::kAnyAge;
inline constexpr Age kNow = Age::kNow;

// An answer of the server, with the time when it came.
struct Sight {
  std::shared_ptr<const wire::Observed> observed;
  uint64_t at_us = 0;  // since 1970
};

// A device as a function sees it. Without NVML_SUCCESS, only `status` counts.
struct View {
  nvmlReturn_t status = NVML_SUCCESS;
  unsigned place = 0;
  Sight now;
  Sight before;  // an answer about a second earlier; its `observed` may be null

  const wire::Observed& facts() const { return *now.observed; }
};

// One device. Any thread may use it.
class Device {
 public:
  Device(shim::Settings settings, unsigned place);
  // Asks the server if the last answer is too old. While the server does not answer, a failure is
  // given back for a while without asking, so that a tool with many questions does not wait long.
  View Look(Age age);
  // Why the last question failed.
  std::string sentence();

 private:
  using Clock = std::chrono::steady_clock;
  void AskNow();

  const shim::Settings settings_;
  const unsigned place_;
  std::mutex mutex_;
  nvmlReturn_t status_ = NVML_ERROR_UNKNOWN;
  std::string sentence_;
  std::deque<Sight> sights_;        // those of the last second, and one that is older
  Clock::time_point good_until_{};  // until then nothing is asked
};

class Table {
 public:
  explicit Table(const shim::Settings& settings);
  size_t size() const { return devices_.size(); }
  Device& at(size_t place) { return *devices_[place]; }
  // The first device whose server answers, as `age` asks for; else the error of the first one.
  View First(Age age);

 private:
  std::vector<std::unique_ptr<Device>> devices_;
};

// The handle of a place, and back. -1: no handle of ours. Handles are the same after another
// nvmlInit, and in a forked child.
nvmlDevice_t HandleOf(size_t place);
int PlaceOf(nvmlDevice_t handle);

}  // namespace rgpu::nvml
