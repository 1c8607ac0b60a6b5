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
inline constexpr uint32_t kMaxWishes = 32;
inline constexpr uint16_t kWishesMinor = 1;  // from this minor on a HELLO ends with wishes
// From this minor of a HELLO on its WELCOME may end with grants.
inline constexpr uint16_t kGrantsMinor = 2;

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

// What a client asks for beside the sizes.  A server ignores keys that it does not know.
enum class WishKey : uint16_t {
  kMemoryPpm = 1,
  kPolicy = 2,
  kPriority = 3,
  kWeight = 4,
  kResumable = 5,
  kShm = 6,
  kCompression = 7,
};

// A wish, or what a server grants of one, under the same key.
struct Wish {
  uint16_t key = 0;
  uint64_t value = 0;
  bool operator==(const Wish&) const = default;
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
  std::vector<Wish> wishes;  // only with a `minor` of at least kWishesMinor
};

// The grant of kShm: the rings came with WELCOME; behind them the device's memory; or, above these
// bits, the errno with which the server failed to make them.
inline constexpr uint64_t kRingGranted = 1;
inline constexpr uint64_t kDeviceMemoryGranted = 2;
inline constexpr unsigned kRingErrnoShift = 8;

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
  std::vector<Wish> grants;  // only to a HELLO of at least kGrantsMinor

  // The value of a grant, 0 if there is none.
  uint64_t Granted(WishKey key) const;
};

struct Refused {
  std::string sentence;  // the CUresult is the header's `status`
};

struct Attach {
  uint64_t session = 0;
  std::array<uint8_t, kSecretBytes> secret{};
};

// The client's answer to a ring that came with WELCOME.  The CUresult of the header is 0.
struct Shm {
  uint8_t accepted = 0;  // 0: both ends stay on the socket
  std::string reason;    // why not
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
void Put(Writer& w, const Shm& m);
bool Get(Reader& r, Shm* m);

// Makes text fit for the handshake: cuts it to `max_bytes` and replaces control characters and what
// is not UTF-8 by '?'.
std::string CleanText(std::string_view text, uint32_t max_bytes);
// True if `text` is UTF-8 without control characters.
bool IsCleanText(std::string_view text);

// In constant time, so that a secret cannot be guessed byte by byte.
bool SameSecret(const std::array<uint8_t, kSecretBytes>& a,
                const std::array<uint8_t, kSecretBytes>& b);

}  // namespace rgpu::wire
