// The messages between a probe and its responder: frames of kind HANDSHAKE with the opcode PROBE.
// docs/explanation/netprobe.md explains them.
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
// The size of an order's head. With the frame header that is 64 bytes, about a small command.
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

// A bit of `wishes` and of an offer's `grants`: shared-memory rings come with the offer, and the
// probe answers them with SHM, as a client answers those that come with WELCOME.
inline constexpr uint16_t kRing = 1;

// The responder's answer: its identity, its other endpoints, and the limits of the probe.
struct Offer {
  uint16_t version = kVersion;
  uint16_t grants = 0;
  std::array<uint8_t, kIdBytes> server{};  // random, the same on every path to this server
  std::array<uint8_t, kIdBytes> nonce{};
  std::array<uint8_t, kHostBytes> host{};  // SHA-256 of the nonce and the host's boot id
  uint64_t bytes = 0;                      // the probe may move so many, both ways together
  uint32_t time_ms = 0;
  std::vector<std::string> endpoints;  // URIs; an unspecified address means the probed address
};

enum class Verb : uint32_t {
  kEcho = 1,   // the responder sends the order back unchanged
  kUp = 2,     // a train of at most `bytes` follows; the responder answers with its Arrivals
  kDown = 3,   // the responder sends a train of `bytes`, for at most `time_ms`
  kCount = 4,  // `bytes` ticks follow; the answer is one Arrival: ns from the first to the last
  kTick = 5,   // one message of a count
};

// A train is a row of frames with an empty head and bulk of `piece` bytes. All but the last have
// MORE.
struct Order {
  Verb verb = Verb::kEcho;
  uint32_t piece = 0;
  uint64_t bytes = 0;
  uint32_t time_ms = 0;
  uint32_t tag = 0;
};

// One reading during a train: `bytes` had arrived `ns` after the order.
struct Arrival {
  uint64_t bytes = 0;
  uint64_t ns = 0;
};

void Put(wire::Writer& w, const Request& m);
bool Get(wire::Reader& r, Request* m);
void Put(wire::Writer& w, const Offer& m);
bool Get(wire::Reader& r, Offer* m);
void Put(wire::Writer& w, const Order& m);
bool Get(wire::Reader& r, Order* m);  // also checks the order's bounds
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

// The result of sending a train.
struct TrainSent {
  uint64_t bytes = 0;  // of all pieces that were begun; part of the last may not have been sent
  bool whole = false;  // false: the connection broke before the train ended
};

// Sends a train, and checks its time limit before each piece. `first` holds frames that go before
// the train in the same write; it may be null.
TrainSent SendTrain(transport::Connection& connection, const Order& order,
                    transport::FrameBuffer* first, int idle_ms);

// Receives a train of at most order.bytes from an untrusted sender. False: the connection is
// broken, or the frames are not a valid train.
bool ReceiveTrain(transport::FrameReader& reader, const Order& order, int idle_ms,
                  std::vector<Arrival>* arrivals);

}  // namespace rgpu::probe
