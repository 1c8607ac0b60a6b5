// Copies: `height` rows of `width` bytes between two addresses; a linear copy has one row.
#pragma once

#include <cstdint>
#include <memory>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/stream.h"

namespace rgpu::emu {

enum class PointerKind {
  kInvalid,  // in the band, but in no allocation
  kDevice,
  kPinned,  // page-locked: the device may read it after the call returns
  kPageable,
};

struct CopyPlan {
  uint64_t dst = 0;
  uint64_t dst_pitch = 0;
  uint64_t src = 0;
  uint64_t src_pitch = 0;
  uint64_t width = 0;
  uint64_t height = 1;
  PointerKind dst_kind = PointerKind::kDevice;
  PointerKind src_kind = PointerKind::kDevice;
};

// The plan of a linear copy.
CopyPlan Linear(uint64_t dst, uint64_t src, uint64_t bytes);

// Sets `*bytes` to the distance from the first byte to the last of `height` rows. Returns false if
// it passes the end of the address space.
bool SpanOf(uint64_t pitch, uint64_t width, uint64_t height, uint64_t* bytes);

// Returns the kind of [address, address + bytes): kInvalid also if it passes the end of its
// allocation.
PointerKind KindOf(uint64_t address, uint64_t bytes);

// Returns true if copies and sets that use this memory must wait
// (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS).
bool WaitsFor(uint64_t address);

// Moves the bytes. CUDA_ERROR_ILLEGAL_ADDRESS: memory of the band was freed meanwhile.
// CUDA_ERROR_INVALID_VALUE: the host's side cannot be read or written.
CUresult MoveBytes(const CopyPlan& plan);

// `required_*`: what the call requires of each side (kInvalid: anything that exists).
CUresult CheckPlan(CopyPlan* plan, PointerKind required_dst, PointerKind required_src);
CUresult SynchronousCopy(const CopyPlan& plan, const std::shared_ptr<Stream>& stream);
// Returns true if the stream captures or must not be used: `*result` is what the call returns.
bool CaptureCopy(const CopyPlan& plan, const Stream& stream, CUresult* result);
CUresult AsynchronousCopy(const CopyPlan& plan, const std::shared_ptr<Stream>& stream);

}  // namespace rgpu::emu
