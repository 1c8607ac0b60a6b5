// The library, the node and how devices are found.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <string>

#include "gen/nvml_calls.gen.h"
#include "rgpu_client/nvml/calls/pci.h"
#include "rgpu_client/nvml/entry.h"
#include "rgpu_client/nvml/versions.h"
#include "rgpu_common/native/base/release.h"

namespace rgpu::nvml {
namespace {

constexpr unsigned kInitFlags = NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH;
constexpr const char* kMajorVersion = "13.";  // of the interface
constexpr size_t kUuidBytes = 16;

// The handle of the first device that `is` accepts. A device whose server does not answer is none.
template <typename Is>
nvmlReturn_t Find(Table& table, Is is, nvmlDevice_t* device) {
  for (size_t i = 0; i < table.size(); ++i) {
    const View view = table.at(i).Look(kAnyAge);
    if (view.status != NVML_SUCCESS || !is(view.facts())) continue;
    *device = HandleOf(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

// The bytes of "GPU-01234567-...". False: the text is no UUID.
bool Bytes(const std::string& uuid, std::array<unsigned char, kUuidBytes>* bytes) {
  std::string digits = uuid.substr(uuid.find('-') + 1);
  std::erase(digits, '-');
  if (digits.size() != 2 * kUuidBytes) return false;
  for (size_t i = 0; i < kUuidBytes; ++i) {
    unsigned byte = 0;
    if (sscanf(digits.substr(2 * i, 2).c_str(), "%2x", &byte) != 1) return false;
    (*bytes)[i] = static_cast<unsigned char>(byte);
  }
  return true;
}

}  // namespace

nvmlReturn_t nvmlInit_v2() { return Begin(true); }

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  if ((flags & ~kInitFlags) != 0) return NVML_ERROR_INVALID_ARGUMENT;
  return Begin(flags == 0);
}

nvmlReturn_t nvmlShutdown() {
  End();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(Table& table, char* version, unsigned length) {
  const View view = table.First(kAnyAge);
  if (view.status != NVML_SUCCESS) return view.status;
  if (view.facts().driver.empty()) return NVML_ERROR_NOT_SUPPORTED;
  return CopyText(view.facts().driver, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return CopyText(std::string(kMajorVersion) + base::Release(), version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(Table& table, int* version) {
  const View view = table.First(kAnyAge);
  if (view.status != NVML_SUCCESS) return view.status;
  if (view.facts().cuda_version == 0) return NVML_ERROR_NOT_SUPPORTED;
  *version = view.facts().cuda_version;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(Table& table, unsigned pid, char* name, unsigned length) {
  for (size_t i = 0; i < table.size(); ++i) {
    const View view = table.at(i).Look(kNow);
    if (view.status != NVML_SUCCESS) continue;
    for (const wire::ObservedProcess& process : view.facts().processes) {
      if (process.pid == pid) return CopyText(process.program, name, length);
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlUnitGetCount(unsigned* count) {
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned* count) {
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(Table& table, unsigned* count) {
  *count = static_cast<unsigned>(table.size());
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(Table& table, unsigned index, nvmlDevice_t* device) {
  if (index >= table.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = HandleOf(index);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(Table& table, const char* uuid, nvmlDevice_t* device) {
  return Find(table, [=](const auto& facts) { return facts.uuid == uuid; }, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(Table& table, const nvmlUUID_t* uuid,
                                        nvmlDevice_t* device) {
  if (uuid->version != VersionOf<nvmlUUID_t>(1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (uuid->type == NVML_UUID_TYPE_ASCII) {
    const std::string text(uuid->value.str, strnlen(uuid->value.str, sizeof uuid->value.str));
    return nvmlDeviceGetHandleByUUID(table, text.c_str(), device);
  }
  if (uuid->type != NVML_UUID_TYPE_BINARY) return NVML_ERROR_INVALID_ARGUMENT;
  const auto same = [uuid](const auto& facts) {
    std::array<unsigned char, kUuidBytes> bytes{};
    return Bytes(facts.uuid, &bytes) && std::equal(bytes.begin(), bytes.end(), uuid->value.bytes);
  };
  return Find(table, same, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(Table& table, const char* pciBusId,
                                              nvmlDevice_t* device) {
  const auto asked = ParsePci(pciBusId);
  if (!asked) return NVML_ERROR_INVALID_ARGUMENT;
  return Find(
      table, [&](const auto& facts) { return ParsePci(facts.pci_bus_id) == asked; }, device);
}

}  // namespace rgpu::nvml
