#include "rgpu_client/shim/paged/mirrors.h"

#include <algorithm>
#include <cstring>

#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/paged/difference.h"
#include "rgpu_client/shim/paged/traffic.h"
#include "rgpu_client/shim/session.h"
#include "rgpu_common/native/base/probe.h"

namespace rgpu::shim {
namespace {

uint8_t* At(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

}  // namespace

CUresult Mirrors::Add(Context& context, uint64_t host, uint64_t device, uint64_t bytes) {
  if (!base::CanRead(At(host), bytes)) return CUDA_ERROR_INVALID_VALUE;
  Mirror mirror{host, device, bytes, static_cast<uint32_t>(context.id), {}, false};
  mirror.before.assign(At(host), At(host) + bytes);
  const CUresult status =
      traffic::Push(session_, context, device, mirror.before.data(), mirror.before.size());
  if (status != CUDA_SUCCESS) return status;
  mirrors_[host] = std::move(mirror);
  SetPagedBit(session_.number(), kMirrors, true);
  return CUDA_SUCCESS;
}

void Mirrors::Remove(uint64_t host) {
  mirrors_.erase(host);
  if (mirrors_.empty()) SetPagedBit(session_.number(), kMirrors, false);
}

void Mirrors::PushOne(Mirror& mirror, Context& context) const {
  const uint8_t* host = At(mirror.host);
  // The program may have freed the memory without unregistering it.
  if (!base::CanRead(host, mirror.bytes)) return;
  for (const ByteRun& run : Difference(host, mirror.before.data(), mirror.bytes)) {
    uint8_t* const sent = mirror.before.data() + run.offset;
    memcpy(sent, host + run.offset, run.bytes);
    traffic::Push(session_, context, mirror.device + run.offset, sent, run.bytes);
  }
}

void Mirrors::Push(Context& context, bool uses) {
  for (auto& [host, mirror] : mirrors_) {
    PushOne(mirror, context);
    mirror.used = mirror.used || uses;
  }
}

void Mirrors::Pull(Context& context, bool settled) {
  std::vector<uint8_t> fresh;
  for (auto& [host, mirror] : mirrors_) {
    if (!mirror.used) continue;
    fresh.resize(mirror.bytes);
    const CUresult status =
        traffic::Fetch(session_, context, mirror.device, mirror.bytes, fresh.data());
    if (status != CUDA_SUCCESS || !base::CanWrite(At(host), mirror.bytes)) continue;
    Merge(At(host), mirror.before.data(), fresh.data(), mirror.bytes);
    mirror.used = !settled;
  }
}

bool Mirrors::AnyUsed() const {
  return std::ranges::any_of(mirrors_, [](const auto& entry) { return entry.second.used; });
}

bool Mirrors::Meets(uint64_t address, uint64_t bytes) const {
  return std::ranges::any_of(mirrors_, [&](const auto& entry) {
    const Mirror& mirror = entry.second;
    return address < mirror.device + mirror.bytes && mirror.device < address + bytes;
  });
}

}  // namespace rgpu::shim
