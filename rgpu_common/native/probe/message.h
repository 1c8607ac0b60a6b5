// What a probe and its responder say to each other: frames of kind HANDSHAKE with the opcode PROBE.
// docs/explanation/netprobe.md is the prose.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::probe {

inline constexpr uint16_t kVersion = 1;
inline constexpr uint32_t kMaxEndpoints = 64;
inline constexpr uint32_t kMaxUriBytes = 256;
inline constexpr uint32_t kIdBytes = 16;
inline constexpr uint32_t kHostBytes = 32;
// The head of an order: with the header 64 bytes, about as much as a small command.
inline constexpr uint32_t kOrderBytes = 24;
inline constexpr uint32_t kMinPieceBytes = 4U << 10;
inline constexpr uint32_t kMaxPoints = 64;
inline constexpr uint64_t kMaxTrainBytes = 1ULL << 30;
inline constexpr uint32_t kMaxTicks = 1U << 20;

// The first frame of a probe.
struct Request {
  uint16_t version = kVersion;
  uint16_t wishes = 0;
};

// In wishes, and in an offer's grants: a ring in shared memory comes with the offer, and is
// answered with SHM, as one that comes with WELCOME.
inline constexpr uint16_t kRing = 1;

// The answer: who this is, by what else it can be reached, and what the probe may use.
struct Offer {
  uint16_t version = kVersion;
  uint16_t grants = 0;
  std::array<uint8_t, kIdBytes> server{};  // random, the same on every path to this server
  std::array<uint8_t, kIdBytes> nonce{};
  std::array<uint8_t, kHostBytes> host{};  // SHA-256 of the nonce and the host's boot id
  uint64_t bytes = 0;                      // both ways together, from now on
  uint32_t time_ms = 0;
  std::vector<std::string> endpoints;  // URIs; an unspecified address is the one just used
};

enum class Verb : uint32_t {
  kEcho = 1,   // comes back as it is
  kUp = 2,     // a train of at most `bytes` follows; answered by its Arrivals
  kDown = 3,   // send a train of `bytes`, for at most `time_ms`
  kCount = 4,  // `bytes` ticks follow; answered by one Arrival with the ns from first to last
  kTick = 5,
};

// A train is frames with an empty head and bulk of `piece` bytes; all but the last have MORE.
struct Order {
  Verb verb = Verb::kEcho;
  uint32_t piece = 0;
  uint64_t bytes = 0;
  uint32_t time_ms = 0;
  uint32_t tag = 0;
};

// How many bytes of a train had come at which time since its order.
struct Arrival {
  uint64_t bytes = 0;
  uint64_t ns = 0;
};

void Put(wire::Writer& w, const Request& m);
bool Get(wire::Reader& r, Request* m);
void Put(wire::Writer& w, const Offer& m);
bool Get(wire::Reader& r, Offer* m);
void Put(wire::Writer& w, const Order& m);
bool Get(wire::Reader& r, Order* m);  // with its bounds
void Put(wire::Writer& w, const std::vector<Arrival>& m);
bool Get(wire::Reader& r, std::vector<Arrival>* m);

// Appends one frame of this protocol.
template <typename Message>
void Append(transport::FrameBuffer* out, const Message& message) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kProbe);
  wire::Writer writer = out->Begin(header);
  Put(writer, message);
  out->End();
}

inline bool IsProbe(const wire::FrameHeader& header) {
  return header.kind == wire::Kind::kHandshake &&
         header.opcode == static_cast<uint16_t>(wire::Handshake::kProbe);
}

// What became of a train.
struct TrainSent {
  uint64_t bytes = 0;  // of all pieces that were begun: part of the last one may not have left
  bool whole = false;  // false: the connection broke before the train ended
};

// Sends a train; the time it may take is checked before each piece.  `first`: frames that go in
// front of it, in the same write.
TrainSent SendTrain(transport::Connection& connection, const Order& order,
                    transport::FrameBuffer* first, int idle_ms);

// Receives one, without believing its sender: at most order.bytes.  False: broken, or it was no
// train.
bool ReceiveTrain(transport::FrameReader& reader, const Order& order, int idle_ms,
                  std::vector<Arrival>* arrivals);

}  // namespace rgpu::probe
