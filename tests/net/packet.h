// What a packet of a TUN device with IFF_VNET_HDR would take on an Ethernet wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::net {

// What comes before each packet: the kernel's virtio_net_hdr, whose header is no C++.
struct Offload {
  uint8_t flags;
  uint8_t gso_type;
  uint16_t hdr_len;
  uint16_t gso_size;
  uint16_t csum_start;
  uint16_t csum_offset;
};

constexpr uint8_t kWhole = 0;  // gso_type of a packet that is one frame

// Ethernet header, frame check sequence, preamble and gap between frames.
constexpr size_t kFrameOverhead = 14 + 4 + 8 + 12;
constexpr size_t kLeastFrame = 60 + 4 + 8 + 12;
constexpr size_t kVnetBytes = sizeof(Offload);
constexpr uint8_t kTcp = 6;

// Bytes of the IP and TCP headers of `packet`, 0 if it is not TCP.
inline size_t HeaderBytes(const uint8_t* packet, size_t bytes) {
  if (bytes < 40) return 0;
  const uint8_t version = packet[0] >> 4;
  const size_t ip = version == 4 ? (packet[0] & 0xFU) * 4U : 40;
  const uint8_t protocol = version == 4 ? packet[9] : packet[6];
  if (protocol != kTcp || bytes < ip + 20) return 0;
  return ip + (packet[ip + 12] >> 4) * 4U;
}

// Bytes on the wire of what was read: the kernel hands over up to 64 KiB that a network card would
// send as many frames, each with headers of its own.
inline uint64_t WireBytes(const uint8_t* read, size_t bytes) {
  if (bytes < kVnetBytes) return 0;
  const auto* offload = reinterpret_cast<const Offload*>(read);
  const uint8_t* packet = read + kVnetBytes;
  bytes -= kVnetBytes;
  const size_t headers = HeaderBytes(packet, bytes);
  if (offload->gso_type == kWhole || offload->gso_size == 0 || headers == 0 || bytes <= headers) {
    const size_t frame = bytes + kFrameOverhead;
    return frame < kLeastFrame ? kLeastFrame : frame;
  }
  const size_t payload = bytes - headers;
  const size_t frames = (payload + offload->gso_size - 1) / offload->gso_size;
  return payload + frames * (headers + kFrameOverhead);
}

}  // namespace rgpu::net
