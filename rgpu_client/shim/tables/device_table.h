// Dev: what WELCOME said of each device, so that questions about devices never travel.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/settings.h"
#include "rgpu_client/shim/tables/objects.h"
#include "rgpu_common/native/wire/welcome.h"

namespace rgpu::shim {

struct Device {
  static constexpr int kAttributes = 192;

  int ordinal = 0;         // as the application counts
  int server_ordinal = 0;  // its place in WELCOME: what travels
  wire::DeviceInfo info;
  std::array<int, kAttributes> attributes{};
  std::array<bool, kAttributes> known{};
  Pool* default_pool = nullptr;
  std::atomic<uint64_t> current_pool{0};  // handle

  // The primary context: made by the first retain, destroyed by the last release.
  std::mutex primary_mutex;
  Context* primary = nullptr;
  int primary_references = 0;
  unsigned primary_flags = 0;

  int Attribute(int id) const {
    return id >= 0 && id < kAttributes && known[static_cast<size_t>(id)]
               ? attributes[static_cast<size_t>(id)]
               : 0;
  }
};

class DeviceTable {
 public:
  // Takes the devices that CUDA_VISIBLE_DEVICES lets the program see, in its order.
  void Fill(const wire::Welcome& welcome, const Settings& settings);

  int count() const { return static_cast<int>(devices_.size()); }
  // Null: no such device.
  Device* Find(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < count() ? &devices_[static_cast<size_t>(ordinal)] : nullptr;
  }

 private:
  std::deque<Device> devices_;
};

// The places in WELCOME that a value of CUDA_VISIBLE_DEVICES names: numbers or `GPU-` and the start
// of a UUID; the first entry that names nothing ends the list, as natively.
std::vector<int> VisibleDevices(const std::string& value,
                                const std::vector<wire::DeviceInfo>& devices);

// "GPU-01234567-89ab-..."
std::string UuidText(const std::array<uint8_t, 16>& uuid);

}  // namespace rgpu::shim
