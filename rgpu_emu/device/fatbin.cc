#include "rgpu_emu/device/fatbin.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rgpu_emu/device/lz4.h"

namespace rgpu::emu {
namespace {

constexpr uint16_t kKindPtx = 1;
constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
// Unpacked text stays in memory, but the lease is charged only for the image, in whole pages. So
// the ratio between the two is limited.
constexpr uint64_t kLargestText = uint64_t{64} << 20;
constexpr uint64_t kLargestRatio = 16;
constexpr uint64_t kPageBytes = 4096;
constexpr uint32_t kOwnTarget = 80;
constexpr size_t kEntryHeader = 64;

template <class T>
T Read(std::span<const uint8_t> from, size_t offset) {
  T value;
  std::memcpy(&value, from.data() + offset, sizeof(T));
  return value;
}

struct Entry {
  uint16_t kind = 0;
  uint32_t target = 0;
  uint64_t flags = 0;
  uint64_t plain_bytes = 0;  // after decompression
  std::span<const uint8_t> payload;
};

// Reads the header of an entry: u16 kind, u16, u32 header bytes, u64 payload bytes with padding,
// u32 stored bytes, ..., u32 target at 28, u64 flags at 40, u64 plain bytes at 56.
Outcome NextEntry(std::span<const uint8_t> fatbin, size_t* at, Entry* entry) {
  const std::span<const uint8_t> rest = fatbin.subspan(*at);
  if (rest.size() < kEntryHeader) return Damaged("a fatbin ends in the middle of an entry");
  const auto header = Read<uint32_t>(rest, 4);
  const auto padded = Read<uint64_t>(rest, 8);
  if (header < kEntryHeader || header > rest.size() || padded > rest.size() - header) {
    return Damaged("a fatbin entry reaches past the end");
  }
  entry->kind = Read<uint16_t>(rest, 0);
  entry->target = Read<uint32_t>(rest, 28);
  entry->flags = Read<uint64_t>(rest, 40);
  entry->plain_bytes = Read<uint64_t>(rest, 56);
  const auto stored = Read<uint32_t>(rest, 16);
  const bool packed = (entry->flags & (kFlagLz4 | kFlagZstd)) != 0;
  if (packed && stored > padded)
    return Damaged("a compressed fatbin entry reaches into the next one");
  entry->payload = rest.subspan(header, packed ? stored : padded);
  *at += header + padded;
  return {};
}

// NVIDIA's loader skips PTX for targets later than its device, and takes the newest of the rest.
bool Better(const Entry& entry, const Entry& best) {
  if (entry.target > kOwnTarget) return false;
  return best.kind != kKindPtx || entry.target > best.target;
}

Outcome TooNew(uint32_t oldest) {
  const std::string own = std::to_string(kOwnTarget);
  return {CUDA_ERROR_NO_BINARY_FOR_GPU, "the oldest PTX in this fatbin is for sm_" +
                                            std::to_string(oldest) + ", and this device is sm_" +
                                            own + ": build it for compute_" + own +
                                            " or earlier as well"};
}

Outcome TextOf(const Entry& entry, std::vector<std::string>* ptx) {
  if ((entry.flags & kFlagZstd) != 0) {
    return {CUDA_ERROR_NO_BINARY_FOR_GPU,
            "the PTX in this fatbin is compressed with zstd, which the emulated device does not "
            "read: build it with "
            "nvcc --compress-mode=speed (LZ4) or -no-compress"};
  }
  std::string text;
  if ((entry.flags & kFlagLz4) != 0) {
    const uint64_t packed = std::max<uint64_t>(entry.payload.size(), kPageBytes);
    if (entry.plain_bytes > kLargestText || entry.plain_bytes / kLargestRatio > packed) {
      return Damaged(
          "the PTX in this fatbin is larger than 64 MiB, or packed to less than a 16th of its "
          "size, which the emulated device does not unpack: build it with nvcc -no-compress");
    }
    text.resize(entry.plain_bytes);
    const std::span<uint8_t> out(reinterpret_cast<uint8_t*>(text.data()), text.size());
    if (!Lz4Decode(entry.payload, out)) return Damaged("a fatbin entry whose LZ4 data is damaged");
  } else {
    text.assign(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  }
  text.resize(strnlen(text.data(), text.size()));
  ptx->push_back(std::move(text));
  return {};
}

}  // namespace

uint64_t FatbinBytes(const uint8_t* at) {
  uint16_t header = 0;
  uint64_t body = 0;
  std::memcpy(&header, at + 6, sizeof(header));
  std::memcpy(&body, at + 8, sizeof(body));
  return body > UINT64_MAX - header ? 0 : header + body;
}

Outcome ReadFatbin(std::span<const uint8_t> fatbin, std::vector<std::string>* ptx) {
  if (fatbin.size() < 16 || FatbinBytes(fatbin.data()) != fatbin.size())
    return Damaged("a fatbin with a bad length");
  size_t at = Read<uint16_t>(fatbin, 6);
  if (at < 16 || at > fatbin.size()) return Damaged("a fatbin with a bad header");
  Entry best;
  uint32_t oldest = 0;  // oldest target of any PTX
  while (at < fatbin.size()) {
    Entry entry;
    Outcome outcome = NextEntry(fatbin, &at, &entry);
    if (!outcome.ok()) return outcome;
    if (entry.kind != kKindPtx) continue;
    oldest = oldest == 0 ? entry.target : std::min(oldest, entry.target);
    if (Better(entry, best)) best = entry;
  }
  if (best.kind != kKindPtx && oldest != 0) return TooNew(oldest);
  if (best.kind != kKindPtx) return {CUDA_ERROR_NO_BINARY_FOR_GPU, ""};
  return TextOf(best, ptx);
}

}  // namespace rgpu::emu
