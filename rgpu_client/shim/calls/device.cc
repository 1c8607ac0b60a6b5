// Device queries. All answers come from the device table, which WELCOME filled.
#include <string.h>
#include <strings.h>

#include <algorithm>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {
namespace {

Device* FindDevice(CUdevice dev) { return CurrentSession()->devices().Find(dev); }

// Copies at most `len` bytes of the text, including the zero at its end.
CUresult CopyText(const std::string& text, char* to, int len) {
  const size_t count = std::min(text.size(), static_cast<size_t>(len) - 1);
  memcpy(to, text.data(), count);
  to[count] = '\0';
  return CUDA_SUCCESS;
}

// "0000:0B:00.0", "0B:00.0" and "0000:0B:00" name the same device.
std::string LongBusId(std::string text) {
  if (std::count(text.begin(), text.end(), ':') == 1) text = "0000:" + text;
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

CUresult TwoDevices(CUdevice first, CUdevice second) {
  if (FindDevice(first) == nullptr || FindDevice(second) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = CurrentSession()->devices().count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const Device* device = FindDevice(dev);
  return CopyText(device->info.name, name, len);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  const Device* device = FindDevice(dev);
  static_assert(sizeof(uuid->bytes) == 16);
  memcpy(uuid->bytes, device->info.uuid.data(), 16);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  const Device* device = FindDevice(dev);
  *bytes = device->info.total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const Device* device = FindDevice(dev);
  const auto id = static_cast<int>(attrib);
  if (id <= 0 || id >= Device::kAttributes || !device->known[static_cast<size_t>(id)]) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pi = device->Attribute(id);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation*,
                                           unsigned int count, CUdevice) {
  std::fill_n(capabilities, count, 0U);  // no atomic operation reaches another machine's memory
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice) {
  *pi = 0;  // the lease's quota decides on compute time, not an affinity
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  const Device* device = FindDevice(dev);
  const auto get = [&](CUdevice_attribute id) { return device->Attribute(static_cast<int>(id)); };
  prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  prop->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  prop->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  prop->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  prop->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  prop->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  prop->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  prop->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  prop->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  const Device* device = FindDevice(dev);
  *major = device->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = device->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  const std::string wanted = LongBusId(pciBusId);
  DeviceTable& devices = CurrentSession()->devices();
  for (int i = 0; i < devices.count(); ++i) {
    if (strcasecmp(LongBusId(devices.Find(i)->info.pci_bus_id).c_str(), wanted.c_str()) != 0) {
      continue;
    }
    *dev = i;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const Device* device = FindDevice(dev);
  return CopyText(device->info.pci_bus_id, pciBusId, len);
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  *canAccessPeer = 0;
  return TwoDevices(dev, peerDev);
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  *value = 0;
  if (srcDevice == dstDevice) return CUDA_ERROR_INVALID_DEVICE;
  return TwoDevices(srcDevice, dstDevice);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation*,
                                          unsigned int count, CUdevice srcDevice,
                                          CUdevice dstDevice) {
  std::fill_n(capabilities, count, 0U);
  return TwoDevices(srcDevice, dstDevice);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
