#include "rgpu_server/executor/device_table.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

struct Override {
  int32_t id;
  int32_t value;
};

// By attribute number as in cuda.h, with a reason per group. A value is 1 only if a test over the
// wire proves the behaviour.
constexpr Override kOverrides[] = {
    // The client keeps memory that it maps to the device, and managed memory, equal on both sides
    // (ADR 0019). It does so for any driver.
    {19, 1},
    {83, 1},
    // Registered memory has another address on the device, and cannot be read-only there.
    {91, 0},
    {113, 0},
    // The host's pages are not the device's: the host may not use managed memory while kernels run,
    // and the device never uses pageable memory.
    {86, 0},
    {88, 0},
    {89, 0},
    {100, 0},
    {101, 0},
    {147, 0},
    // Launches on several devices: a session has one device.
    {96, 0},
    // Other handles, and pools, shared with another process or the host.
    {104, 0},
    {105, 0},
    {110, 0},
    {116, 0},
    {117, 0},
    {118, 0},
    {119, 0},
    {124, 0},
    {128, 0},
    {141, 0},
    {142, 0},
    {144, 0},
    {145, 0},
    {146, 0},
    // The first version of stream memory operations, and flushes of remote writes.
    {92, 0},
    {93, 0},
    {94, 0},
    {98, 0},
    // Sparse arrays, timeline semaphores, multicast, CIG, several nodes, unified function pointers.
    {112, 0},
    {114, 0},
    {129, 0},
    {132, 0},
    {135, 0},
    {138, 0},
    {143, 0},
    // Tensor maps and decompression have no commands yet.
    {127, 0},
    {136, 0},
    {137, 0},
    // Settings of the node that must not concern the program: exclusive mode would stop its second
    // process.
    {20, 0},
    {133, 0},
    // NUMA node numbers of another host would mislead a program that pins threads.
    {130, 0},
    {131, -1},
    {134, -1},
    {18, 0},
};

constexpr int kLastAttribute = 147;
constexpr int kPciBus = 33;
constexpr int kPciDevice = 34;
constexpr int kPciDomain = 50;
constexpr int kUnifiedAddressing = 41;
// Only a hint for transfers: the client registers the memory on its own side.
constexpr int kHostRegister = 99;

struct Pci {
  int domain;
  int bus;
};

// Derives an id that is unique per server and device. The real ids would collide: the first devices
// of two servers often have the same.
Pci SyntheticPci(const std::array<uint8_t, 16>& uuid) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3ULL; };
  for (const char* p = host; *p != 0; ++p) mix(static_cast<uint8_t>(*p));
  for (const uint8_t byte : uuid) mix(byte);
  return {static_cast<int>(0x1000 + (hash >> 40) % 0xe000),
          static_cast<int>(1 + (hash >> 8) % 255)};
}

void ReadAttributes(const Driver& driver, CUdevice device, const Pci& pci, wire::DeviceInfo* info) {
  for (int id = 1; id <= kLastAttribute; ++id) {
    int value = 0;
    if (driver->cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(id), device) !=
        CUDA_SUCCESS) {
      continue;
    }
    const auto* found = std::ranges::find(kOverrides, id, &Override::id);
    if (found != std::end(kOverrides)) value = found->value;
    if (id == kPciBus) value = pci.bus;
    if (id == kPciDevice) value = 0;
    if (id == kPciDomain) value = pci.domain;
    if (id == kUnifiedAddressing || id == kHostRegister) value = 1;
    info->attributes.push_back({id, value});
  }
}

}  // namespace

CUresult ReadDevice(const Driver& driver, CUdevice device, uint64_t limit_bytes,
                    wire::DeviceInfo* info) {
  std::array<char, wire::kMaxNameBytes> name{};
  CUresult result = driver->cuDeviceGetName(name.data(), name.size() - 1, device);
  CUuuid uuid{};
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGetUuid_v2(&uuid, device);
  size_t total = 0;
  if (result == CUDA_SUCCESS) result = driver->cuDeviceTotalMem_v2(&total, device);
  if (result != CUDA_SUCCESS) return result;
  info->name = wire::CleanText(name.data(), wire::kMaxNameBytes);
  std::memcpy(info->uuid.data(), uuid.bytes, info->uuid.size());
  info->total_bytes = std::min<uint64_t>(limit_bytes, total);
  const Pci pci = SyntheticPci(info->uuid);
  char bus_id[32];
  std::snprintf(bus_id, sizeof bus_id, "%04x:%02x:00.0", static_cast<unsigned>(pci.domain),
                static_cast<unsigned>(pci.bus));
  info->pci_bus_id = bus_id;
  ReadAttributes(driver, device, pci, info);
  info->default_pool = kDefaultPool;
  // The driver returns stream priorities only within a context, which takes long to create. These
  // values hold for every device since compute capability 7.0.
  info->least_priority = 0;
  info->greatest_priority = -5;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
