// Calls cuDevice*, except those about contexts and pools.
#include <unistd.h>

#include <strings.h>
#include <cstring>
#include <string>

#include "rgpu_emu/device/attributes.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/function.h"

namespace rgpu::emu {
namespace {

CUresult Check(CUdevice dev, const void* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return dev == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CopyText(const char* text, char* out, int len) {
  if (len <= 0) return CUDA_ERROR_INVALID_VALUE;
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
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const CUresult bad = Check(ordinal, device);
  if (bad == CUDA_SUCCESS) *device = 0;
  return bad;
}

CUresult cuDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const CUresult bad = Check(dev, name);
  return bad == CUDA_SUCCESS ? CopyText(kDeviceName, name, len) : bad;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  if (const CUresult bad = Check(dev, uuid); bad != CUDA_SUCCESS) return bad;
  const uint64_t place = PlaceHash();
  std::memcpy(uuid->bytes, "rgpu-emu", 8);
  std::memcpy(uuid->bytes + 8, &place, sizeof(place));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  const CUresult bad = Check(dev, bytes);
  if (bad == CUDA_SUCCESS) *bytes = TheDevice().arena.capacity();
  return bad;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  if (const CUresult bad = Check(dev, pi); bad != CUDA_SUCCESS) return bad;
  return DeviceAttribute(attrib, pi) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  if (const CUresult bad = Check(dev, prop); bad != CUDA_SUCCESS) return bad;
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
  prop->memPitch = 2147483647;
  prop->regsPerBlock = kRegistersPerSm;
  prop->clockRate = 1000000;
  prop->textureAlign = 512;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  if (minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = Check(dev, major); bad != CUDA_SUCCESS) return bad;
  *major = kComputeMajor;
  *minor = kComputeMinor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const CUresult bad = Check(dev, pciBusId);
  return bad == CUDA_SUCCESS ? CopyText(kPciBusId, pciBusId, len) : bad;
}

// Format [domain]:[bus]:[device].[function]; the domain may be missing.
CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool ours =
      strcasecmp(pciBusId, kPciBusId) == 0 || strcasecmp(pciBusId, kPciBusId + 5) == 0;
  if (!ours) return CUDA_ERROR_INVALID_DEVICE;
  *dev = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  const CUresult bad = Check(dev, pi);
  if (bad == CUDA_SUCCESS) *pi = 0;
  return bad;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice dev) {
  const CUresult bad = Check(dev, capabilities);
  if (bad != CUDA_SUCCESS) return bad;
  if (operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::memset(capabilities, 0, sizeof(*capabilities) * count);
  return CUDA_SUCCESS;
}

// There is only one device, and a device is not its own peer.
CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (const CUresult bad = Check(dev, canAccessPeer); bad != CUDA_SUCCESS) return bad;
  if (peerDev != 0) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation*,
                                          unsigned int, CUdevice, CUdevice) {
  return capabilities == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace rgpu::emu
