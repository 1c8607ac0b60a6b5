// NVIDIA's management library of a machine with two GPUs, as far as rgpu asks it. FAKE_MIG says what
// GPU 1 is: "off" (it has no MIG), "empty" (no slices), else it has three slices.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kOk = 0, kNotSupported = 3, kNotFound = 6, kMost = 7 };

typedef struct {
  const char* uuid;
  const char* name;
  const char* bus;
  int parent;  // of a slice: the number of its GPU; else -1
  int place;   // of a slice: its number on the GPU
  unsigned slices, own_slices;
  unsigned long long megabytes;
} Device;

static Device devices[] = {
    {"GPU-11111111-1111-1111-1111-111111111111", "NVIDIA H100", "00000000:3B:00.0", -1, 0, 0, 0, 0},
    {"GPU-22222222-2222-2222-2222-222222222222", "NVIDIA H100", "00000000:5E:00.0", -1, 0, 0, 0, 0},
    {"MIG-33333333-3333-3333-3333-333333333333", "NVIDIA H100 MIG 1g.10gb", "", 1, 0, 1, 1, 9856},
    // The driver of this one does not name the profile.
    {"MIG-44444444-4444-4444-4444-444444444444", "NVIDIA H100", "", 1, 2, 2, 2, 19968},
    {"MIG-55555555-5555-5555-5555-555555555555", "NVIDIA H100 MIG 1c.3g.40gb", "", 1, 5, 3, 1, 40448},
};
enum { kGpus = 2, kDevices = sizeof devices / sizeof *devices };

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
} PciInfo;

typedef struct {
  unsigned processors, copy, decoders, encoders, jpeg, ofa, slices, own_slices;
  unsigned long long megabytes;
} Attributes;

static int is(const char* mode) {
  const char* said = getenv("FAKE_MIG");
  return said != NULL && strcmp(said, mode) == 0;
}

int nvmlInit_v2(void) { return kOk; }
int nvmlInitWithFlags(unsigned flags) { return flags == 0 ? kOk : kNotSupported; }
int nvmlShutdown(void) { return kOk; }
const char* nvmlErrorString(int code) { return code == kNotFound ? "not found" : "not supported"; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return kOk;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** found) {
  if (index >= kGpus) return kNotFound;
  *found = &devices[index];
  return kOk;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, Device** found) {
  for (int i = 0; i < kDevices; i++) {
    if (strcmp(devices[i].uuid, uuid) != 0) continue;
    *found = &devices[i];
    return kOk;
  }
  return kNotFound;
}

int nvmlDeviceGetUUID(Device* device, char* uuid, unsigned size) {
  snprintf(uuid, size, "%s", device->uuid);
  return kOk;
}

int nvmlDeviceGetName(Device* device, char* name, unsigned size) {
  snprintf(name, size, "%s", device->name);
  return kOk;
}

int nvmlDeviceGetMigMode(Device* device, unsigned* now, unsigned* later) {
  if (is("off")) return kNotSupported;
  *now = *later = device == &devices[1];
  return kOk;
}

int nvmlDeviceGetMaxMigDeviceCount(Device* device, unsigned* count) {
  (void)device;
  *count = kMost;
  return kOk;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device* device, unsigned index, Device** found) {
  for (int i = kGpus; i < kDevices && !is("empty"); i++) {
    if (&devices[devices[i].parent] != device || devices[i].place != (int)index) continue;
    *found = &devices[i];
    return kOk;
  }
  return kNotFound;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device* slice, Device** found) {
  if (slice->parent < 0) return kNotSupported;
  *found = &devices[slice->parent];
  return kOk;
}

int nvmlDeviceGetAttributes_v2(Device* device, Attributes* found) {
  if (device->parent < 0) return kNotSupported;
  memset(found, 0, sizeof *found);
  found->slices = device->slices;
  found->own_slices = device->own_slices;
  found->megabytes = device->megabytes;
  return kOk;
}

int nvmlDeviceGetPciInfo_v3(Device* device, PciInfo* found) {
  if (device->parent >= 0) return kNotSupported;
  memset(found, 0, sizeof *found);
  snprintf(found->bus_id, sizeof found->bus_id, "%s", device->bus);
  return kOk;
}
