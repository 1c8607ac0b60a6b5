// Calls cuDevice*, except those about contexts and pools.
#include <unistd.h>

#include <strings.h>
#include <cstring>
#include <string>

#include "rgpu_common/native/base/box_copy.h"
#include "rgpu_emu/device/attributes.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/function.h"

namespace rgpu::emu {
namespace {

CUresult CopyText(const char* text, char* out, int len) {
  const auto room = static_cast<size_t>(len);
  const size_t count = std::min(std::strlen(text), room - 1);
  std::memcpy(out, text, count);
  out[count] = '\0';
  return CUDA_SUCCESS;
}

// FNV-1a hash of HOST/ORDINAL: the same at every start, and different for each device. The server's
// devices.py computes the same hash.
uint64_t PlaceHash() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : std::string(name) + '/' + std::to_string(TheDevice().settings.ordinal)) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  }
  return hash;
}

}  // namespace

CUresult cuDriverGetVersion(int* driverVersion) {
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice) { return CopyText(kDeviceName, name, len); }

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  const uint64_t place = PlaceHash();
  std::memcpy(uuid->bytes, "rgpu-emu", 8);
  std::memcpy(uuid->bytes + 8, &place, sizeof(place));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = TheDevice().arena.capacity();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice) {
  return DeviceAttribute(attrib, pi) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice) {
  *prop = CUdevprop{};
  prop->maxThreadsPerBlock = kMaxThreadsPerBlock;
  prop->maxThreadsDim[0] = kMaxBlockX;
  prop->maxThreadsDim[1] = kMaxBlockY;
  prop->maxThreadsDim[2] = kMaxBlockZ;
  prop->maxGridSize[0] = kMaxGridX;
  prop->maxGridSize[1] = kMaxGridYZ;
  prop->maxGridSize[2] = kMaxGridYZ;
  prop->sharedMemPerBlock = kSharedPerBlock;
  prop->totalConstantMemory = 65536;
  prop->SIMDWidth = kWarpSize;
  prop->memPitch = base::kMaxPitch;
  prop->regsPerBlock = kRegistersPerSm;
  prop->clockRate = 1000000;
  prop->textureAlign = 512;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
  *major = kComputeMajor;
  *minor = kComputeMinor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice) {
  return CopyText(kPciBusId, pciBusId, len);
}

// Format [domain]:[bus]:[device].[function]; the domain may be missing.
CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  const bool ours =
      strcasecmp(pciBusId, kPciBusId) == 0 || strcasecmp(pciBusId, kPciBusId + 5) == 0;
  if (!ours) return CUDA_ERROR_INVALID_DEVICE;
  *dev = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice) {
  *pi = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation*,
                                           unsigned int count, CUdevice) {
  std::memset(capabilities, 0, sizeof(*capabilities) * count);
  return CUDA_SUCCESS;
}

// There is only one device, and a device is not its own peer.
CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (!IsDevice(dev) || !IsDevice(peerDev)) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int*, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int*, const CUatomicOperation*, unsigned int,
                                          CUdevice, CUdevice) {
  return CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace rgpu::emu
