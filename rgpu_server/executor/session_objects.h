// The objects of one session, found by the handles that the client minted for them.
//
// The tables only hold: handlers create and destroy driver objects, and the memory account charges
// for them. The executor's lock guards all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "rgpu_server/executor/images.h"
#include "rgpu_server/executor/objects.h"
#include "rgpu_server/executor/table.h"
#include "rgpu_server/executor/virtual_memory.h"

namespace rgpu::exec {

// All images that the client is sending, together; one image may use the whole limit.
inline constexpr uint64_t kMaxImageBytes = 256U << 20;
inline constexpr size_t kMaxImages = 64;

// The id that cuDeviceGetDefaultMemPool returns; clients cannot use it for their own pools.
inline constexpr uint64_t kDefaultPool = 1ULL << 63;
// Ids from here on are for pools that the client has destroyed and that still have allocations.
inline constexpr uint64_t kDestroyedPools = 1ULL << 62;

struct SessionObjects {
  Table<Context> contexts{64};
  Table<Stream> streams{kMaxStreams};
  Table<Event> events;
  Table<Code> modules;
  Table<Code> libraries;
  Table<Function> functions;
  Table<Function> kernels;
  Table<Pool> pools{1024};
  Table<Link> links{1024};
  Table<Image> images{kMaxImages};
  Ranges ranges;
  Table<MappableMemory> memories;
  VirtualMemory virtual_memory;
  // One of `contexts` is the device's primary context, or it is being created or destroyed.
  bool primary_retained = false;
  // Of `images`, and of what `links` keep.
  uint64_t image_bytes = 0;

  // Whether the client has any stream besides the legacy stream.
  bool has_streams() const;
  // Forgets every object that goes with the context. Returns the bytes that are charged for these
  // objects; the caller releases them when the driver has destroyed the context. `forget(base,
  // range)` returns those of an allocation.
  using Forget = std::function<uint64_t(uint64_t base, const Range& range)>;
  uint64_t ForgetContext(const std::shared_ptr<Context>& context, const Forget& forget);
};

}  // namespace rgpu::exec
