// WELCOME: the server's answer that opens a session.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxAttributes = 400;

struct DeviceInfo {
  std::string name;
  std::array<uint8_t, 16> uuid{};
  uint64_t total_bytes = 0;
  std::string pci_bus_id;
  std::vector<std::pair<int32_t, int32_t>> attributes;  // CUdevice_attribute, value
  uint64_t default_pool = 0;
  int32_t least_priority = 0;
  int32_t greatest_priority = 0;
};

struct Welcome {
  uint64_t session = 0;
  std::array<uint8_t, kSecretBytes> secret{};
  std::string release;
  Band band;
  Band pinned;
  uint32_t stream_credits = 0;
  uint64_t stream_credit_bytes = 0;
  uint64_t memory_limit_bytes = 0;
  int32_t driver_version = 0;
  std::vector<uint16_t> missing;
  std::vector<DeviceInfo> devices;
  std::string note;          // one sentence about the device library, for the client's log
  std::vector<Wish> grants;  // only in the answer to a HELLO of kGrantsMinor or later

  // The value of a grant, 0 if there is none.
  uint64_t Granted(WishKey key) const;
};

void Put(Writer& w, const Welcome& m);
// Checks every field, and that no byte is left. False: refuse the peer.
bool Get(Reader& r, Welcome* m);

}  // namespace rgpu::wire
