// The device table. It holds what WELCOME said about each device, so that device queries need no
// round trip.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "gen/handshake.gen.h"
#include "rgpu_client/shim/settings.h"
#include "rgpu_client/shim/tables/objects.h"

namespace rgpu::shim {

struct Device {
  static constexpr int kAttributes = 192;

  int ordinal = 0;         // the number that the application uses
  unsigned session = 0;    // the number of its session
  int server_ordinal = 0;  // the place in WELCOME, which commands carry
  wire::DeviceInfo info;
  std::array<int, kAttributes> attributes{};
  std::array<bool, kAttributes> known{};
  Pool* default_pool = nullptr;
  std::atomic<uint64_t> current_pool{0};    // handle
  std::atomic<uint64_t> graph_reserved{0};  // bytes of graphs' memory, now and at most
  std::atomic<uint64_t> graph_reserved_high{0};

  // The primary context. The first retain creates it and the last release destroys it.
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
  // Adds the devices of the sessions that CUDA_VISIBLE_DEVICES lists, in the order of the list, or
  // else all. welcomes: by the number of the session.
  void Fill(const std::vector<const wire::Welcome*>& welcomes, const Settings& settings);

  int count() const { return static_cast<int>(devices_.size()); }
  // Null: no such device.
  Device* Find(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < count() ? &devices_[static_cast<size_t>(ordinal)] : nullptr;
  }

  // The first device of a session. Null: none of its devices is visible.
  Device* FirstOf(unsigned session);

 private:
  std::deque<Device> devices_;
};

// The places in `devices` that a value of CUDA_VISIBLE_DEVICES names. An entry is a number, or
// `GPU-` and the start of a UUID. As with NVIDIA's driver, the first entry that names no device
// ends the list.
std::vector<int> VisibleDevices(const std::string& value,
                                const std::vector<wire::DeviceInfo>& devices);

// "GPU-01234567-89ab-..."
std::string UuidText(const std::array<uint8_t, 16>& uuid);

}  // namespace rgpu::shim
