// Attributes and parameters of functions, and how many of their blocks fit on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rgpu_emu/device/module.h"

namespace rgpu::emu {

// Limits of the device, against which launches and occupancy are checked (CC 8.0).
inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxBlockX = 1024;
inline constexpr int kMaxBlockY = 1024;
inline constexpr int kMaxBlockZ = 64;
inline constexpr int kMaxGridX = 2147483647;
inline constexpr int kMaxGridYZ = 65535;
inline constexpr int kWarpSize = 32;
inline constexpr int kSharedPerBlock = 48 * 1024;
inline constexpr int kSharedPerBlockOptIn = 163 * 1024;
inline constexpr int kSharedPerSm = 164 * 1024;
inline constexpr int kSharedReserved = 1024;
inline constexpr int kRegistersPerSm = 65536;
inline constexpr int kThreadsPerSm = 2048;
inline constexpr int kBlocksPerSm = 32;
inline constexpr int kSyncDomains = 1;  // domains of memory synchronisation
inline constexpr int kMaxParamBytes = 4096;

// The number of multiprocessors that the device reports: as many as blocks run at the same time.
int SmCount();
int SmCountFor(unsigned threads);

CUresult ParamInfoOf(const EntryInfo& entry, size_t index, size_t* offset, size_t* size);
CUresult GetAttribute(const EntryInfo& entry, const FunctionState& state,
                      CUfunction_attribute attribute, int* value);
CUresult SetAttribute(const EntryInfo& entry, FunctionState* state, CUfunction_attribute attribute,
                      int value);

int MaxThreads(const EntryInfo& entry);
// False: .reqntid demands another block.
bool IsRequiredBlock(const EntryInfo& entry, const uint32_t (&block)[3]);
// The largest dynamic shared memory that a launch may request.
uint64_t MaxDynamicShared(const EntryInfo& entry, const FunctionState& state);
// How many blocks of this shape fit on one multiprocessor.
int BlocksPerSm(const EntryInfo& entry, int block_size, uint64_t dynamic_shared);

}  // namespace rgpu::emu
