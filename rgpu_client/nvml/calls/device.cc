// What a device is, and what the lease has and uses of it.
#include <stdio.h>

#include <algorithm>

#include "gen/nvml_calls.gen.h"
#include "rgpu_client/nvml/calls/pci.h"
#include "rgpu_client/nvml/entry.h"
#include "rgpu_client/nvml/versions.h"

namespace rgpu::nvml {
namespace {

constexpr unsigned kPpmOfPercent = 10000;
constexpr unsigned kUnknownArchitecture = 0xffffffff;
constexpr unsigned kDisplayController = 3;  // PCI base class, and its subclass "3D controller"
constexpr unsigned k3d = 2;

// The architectures of nvml.h by compute capability: major, least minor, NVML_DEVICE_ARCH_*.
struct Architecture {
  unsigned major;
  unsigned minor;
  unsigned value;
};
constexpr Architecture kArchitectures[] = {
    {12, 0, 10}, {10, 0, 10}, {9, 0, 9}, {8, 9, 8}, {8, 0, 7},
    {7, 5, 6},   {7, 0, 5},   {6, 0, 4}, {5, 0, 3}, {3, 0, 2},
};

nvmlReturn_t Set(unsigned* to, unsigned value) {
  *to = value;
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetName(const View& of, char* name, unsigned length) {
  return CopyText(of.facts().name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(const View& of, char* uuid, unsigned length) {
  return CopyText(of.facts().uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(const View& of, unsigned* index) { return Set(index, of.place); }

nvmlReturn_t nvmlDeviceGetBrand(const View&, nvmlBrandType_t* type) {
  return Set(type, NVML_BRAND_UNKNOWN);
}

nvmlReturn_t nvmlDeviceGetArchitecture(const View& of, nvmlDeviceArchitecture_t* arch) {
  const unsigned major = of.facts().compute_major;
  const unsigned minor = of.facts().compute_minor;
  const auto* const found = std::ranges::find_if(kArchitectures, [&](const Architecture& one) {
    return one.major == major && one.minor <= minor;
  });
  return Set(arch, found == std::end(kArchitectures) ? kUnknownArchitecture : found->value);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(const View& of, int* major, int* minor) {
  if (of.facts().compute_major == 0) return NVML_ERROR_NOT_SUPPORTED;
  *major = static_cast<int>(of.facts().compute_major);
  *minor = static_cast<int>(of.facts().compute_minor);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(const View& of, nvmlPciInfo_t* pci) {
  const auto at = ParsePci(of.facts().pci_bus_id);
  if (!at) return NVML_ERROR_NOT_SUPPORTED;
  *pci = {};
  pci->domain = at->domain;
  pci->bus = at->bus;
  pci->device = at->device;
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", at->domain & 0xffffU,
           at->bus, at->device);
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", at->domain, at->bus, at->device);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(const View& of, nvmlPciInfoExt_t* pci) {
  if (pci->version != VersionOf<nvmlPciInfoExt_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const auto at = ParsePci(of.facts().pci_bus_id);
  if (!at) return NVML_ERROR_NOT_SUPPORTED;
  *pci = {};
  pci->version = VersionOf<nvmlPciInfoExt_t>(1);
  pci->domain = at->domain;
  pci->bus = at->bus;
  pci->device = at->device;
  pci->baseClass = kDisplayController;
  pci->subClass = k3d;
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", at->domain, at->bus, at->device);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBusType(const View&, nvmlBusType_t* type) {
  return Set(type, NVML_BUS_TYPE_PCIE);
}

nvmlReturn_t nvmlDeviceGetMigMode(const View&, unsigned* current, unsigned* pending) {
  *current = NVML_DEVICE_MIG_DISABLE;
  return Set(pending, NVML_DEVICE_MIG_DISABLE);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(const View&, unsigned* is) { return Set(is, 0); }

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(const View&, unsigned* count) { return Set(count, 0); }

nvmlReturn_t nvmlDeviceGetComputeMode(const View&, nvmlComputeMode_t* mode) {
  return Set(mode, NVML_COMPUTEMODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(const View&, nvmlEnableState_t* display) {
  return Set(display, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(const View&, nvmlEnableState_t* active) {
  return Set(active, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(const View& of, nvmlMemory_t* memory) {
  const uint64_t limit = of.facts().memory_limit_bytes;
  // A lease may use more than its limit for a while after the limit was made smaller.
  const uint64_t used = of.facts().memory_used_bytes;
  *memory = {limit, limit - std::min(used, limit), used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(const View& of, nvmlMemory_v2_t* memory) {
  if (memory->version != VersionOf<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlMemory_t plain{};
  nvmlDeviceGetMemoryInfo(of, &plain);
  *memory = {memory->version, plain.total, 0, plain.free, plain.used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(const View& of, nvmlUtilization_t* utilization) {
  const uint64_t percent = (uint64_t{of.facts().share_ppm} + kPpmOfPercent / 2) / kPpmOfPercent;
  *utilization = {static_cast<unsigned>(std::min<uint64_t>(percent, 100)), 0};
  return NVML_SUCCESS;
}

}  // namespace rgpu::nvml
