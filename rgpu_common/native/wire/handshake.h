// The messages that open a session.  Everything here is read before anybody is trusted, so every
// length has a bound of its own and text is UTF-8 without control characters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

inline constexpr uint32_t kMaxNameBytes =
    256;  // release, lease key, tenant, container, device name
inline constexpr uint32_t kMaxTokenBytes = 8192;     // a bearer token
inline constexpr uint32_t kMaxSentenceBytes = 4096;  // program, sentences
inline constexpr uint32_t kMaxBands = 64;
inline constexpr uint32_t kMaxOpcodes = 4096;
inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxAttributes = 400;

struct Band {
  uint64_t base = 0;
  uint64_t size = 0;
  bool operator==(const Band&) const = default;
};

struct OpcodeHash {
  uint16_t opcode = 0;
  uint32_t layout_hash = 0;
  bool operator==(const OpcodeHash&) const = default;
};

struct Hello {
  uint16_t major = kWireMajor;
  uint16_t minor = kWireMinor;
  std::string release;
  std::string token;
  std::string lease_key;
  std::string tenant;
  std::string container;
  std::string program;
  uint32_t pid = 0;
  int32_t device = -1;        // -1: any
  uint64_t memory_bytes = 0;  // 0: the server's default
  uint32_t share_request_ppm = 0;
  uint32_t share_limit_ppm = 0;
  uint64_t resume_session = 0;
  uint64_t resume_seq = 0;
  std::vector<Band> device_bands;
  std::vector<Band> pinned_bands;
  std::vector<OpcodeHash> opcodes;
};

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
  std::string note;  // one sentence about the device library, for the client's log
};

struct Refused {
  std::string sentence;  // the CUresult is the header's `status`
};

struct Attach {
  uint64_t session = 0;
  std::array<uint8_t, kSecretBytes> secret{};
};

// Get checks everything and leaves nothing over; false: refuse the peer.
// A Hello of another major decodes only its first three fields (magic, major, minor): `major` says
// so.
void Put(Writer& w, const Hello& m);
bool Get(Reader& r, Hello* m);
void Put(Writer& w, const Welcome& m);
bool Get(Reader& r, Welcome* m);
void Put(Writer& w, const Refused& m);
bool Get(Reader& r, Refused* m);
void Put(Writer& w, const Attach& m);
bool Get(Reader& r, Attach* m);

// Makes text fit for the handshake: cuts it to `max_bytes` and replaces control characters and what
// is not UTF-8 by '?'.
std::string CleanText(std::string_view text, uint32_t max_bytes);
// True if `text` is UTF-8 without control characters.
bool IsCleanText(std::string_view text);

// In constant time, so that a secret cannot be guessed byte by byte.
bool SameSecret(const std::array<uint8_t, kSecretBytes>& a,
                const std::array<uint8_t, kSecretBytes>& b);

}  // namespace rgpu::wire
