// Attributes and parameters of functions, and how many blocks fit.
#pragma once

#include <cstddef>

#include "rgpu_emu/device/module.h"

namespace rgpu::emu {

// The device's limits that launches and occupancy are checked against (CC 8.0).
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
inline constexpr int kMaxParamBytes = 4096;

// Multiprocessors that the device reports: as many as blocks run side by side.
int SmCount();
int SmCountFor(unsigned threads);

CUresult ParamInfoOf(const EntryInfo& entry, size_t index, size_t* offset, size_t* size);
CUresult GetAttribute(const EntryInfo& entry, const FunctionState& state,
                      CUfunction_attribute attribute, int* value);
CUresult SetAttribute(const EntryInfo& entry, FunctionState* state, CUfunction_attribute attribute,
                      int value);

int MaxThreads(const EntryInfo& entry);
// Largest dynamic shared memory that a launch may ask for.
uint64_t MaxDynamicShared(const EntryInfo& entry, const FunctionState& state);
// Blocks of this shape that fit on one multiprocessor.
int BlocksPerSm(const EntryInfo& entry, int block_size, uint64_t dynamic_shared);

}  // namespace rgpu::emu
