// Copies between host, device memory and arrays. All copy functions use RunCopy.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

// One side of a copy. Its rows begin `pitch` bytes apart, its slices `rows` rows apart.
struct Side {
  uint64_t address = 0;
  uint64_t pitch = 0;
  bool device = false;
  uint64_t rows = 1;
  // Instead of an address: an array (`device` is set), and where in it the copy begins; x in bytes.
  // The caller has checked that the copy lies in the array.
  uint64_t array = 0;
  uint64_t x = 0;
  uint64_t y = 0;
  uint64_t z = 0;

  // The place of one byte of the copy.
  Side At(uint64_t slice, uint64_t row, uint64_t column) const {
    Side at = *this;
    if (array == 0) at.address += (slice * rows + row) * pitch + column;
    if (array != 0) at.x += column;
    if (array != 0) at.y += row;
    if (array != 0) at.z += slice;
    return at;
  }
};

// When the source of an asynchronous copy from the host may be read.
enum class SourceOrder : uint8_t {
  kByMemory,  // cuMemcpyAsync: pageable memory at the call, pinned memory also in stream order
  kStream,    // in stream order
  kAtCall,    // at the call
};

struct Copy {
  Side to;
  Side from;
  uint64_t width = 0;
  uint64_t height = 1;
  bool synchronous = true;
  SourceOrder source_order = SourceOrder::kByMemory;
  uint64_t depth = 1;

  uint64_t bytes() const { return width * height * depth; }
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  // Has an array, or slices: it travels in the commands for boxes.
  bool is_box() const { return to.array != 0 || from.array != 0 || depth > 1; }
};

// The host's side of a copy.
HostRegion Region(const Side& side, const Copy& copy);

// Sets `*bytes` to the distance from the first byte to the end of the last row of linear memory.
// False: it overflows, or rows or slices overlap.
bool SpanOf(const Side& side, const Copy& copy, uint64_t* bytes);

// Turns rows and slices that lie without gaps on both sides into fewer, longer rows.
Copy Flattened(const Copy& copy);

// Checks the sides in linear memory. CUDA_ERROR_INVALID_VALUE: a device side does not lie in one
// known range.
CUresult CheckSides(const Here& here, const Copy& copy);

// The same for one side of a copy.
CUresult CheckSide(const Here& here, const Side& side, const Copy& copy);

// Makes host sides of device sides in page-locked memory.
void NamePinnedSides(Copy* copy);

// For a copy whose sides are checked. True: here.stream captures it, or it must not be made while a
// stream captures; the call returns `*status`.
bool CapturedCopy(const Here& here, const Copy& copy, CUresult* status);

// Checks both sides and makes the copy in here.stream. A copy from host to host is complete on
// return.
CUresult RunCopy(const Here& here, const Copy& copy);

// The same for one copy of a batch. The host copies from host to host, so this waits until the
// stream has reached its place.
CUresult RunCopyOfBatch(const Here& here, const Copy& copy);

// True if all rows of the side lie in one known range of device memory.
bool IsKnownDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height);

// The end of a synchronous copy or set in here.stream. It is complete on return if the program
// asked for that (SYNC_MEMOPS), or uses the side's memory in place. `read_elsewhere`: also if other
// processes may read the side's memory.
CUresult FinishSynchronous(const Here& here, const Side& side, bool read_elsewhere);

// Called before a command uses the side: what the program has written there in place is sent.
void UseDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height,
                     bool written);
void UseDeviceMemory(const Here& here, const Side& side, const Copy& copy, bool written);

}  // namespace rgpu::shim
