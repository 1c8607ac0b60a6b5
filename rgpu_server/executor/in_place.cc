#include "rgpu_server/executor/in_place.h"

#include <algorithm>

#include "gen/codec.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr uint32_t kLeastBytes = 64U << 10;  // smaller copies stay in the core's cache anyway
constexpr size_t kMostStreams = 16;          // how many streams are checked for one piece at most
constexpr uint64_t kCreditBytes = 1U << 20;  // credits are returned after this many bytes

bool IsIdle(Executor& executor, Context& context) {
  if (context.deliveries > 0 || context.streams.size() > kMostStreams) return false;
  return std::ranges::all_of(context.streams, [&](const auto& stream) {
    if (!stream->idle()) executor.order().Advance(*stream);
    return stream->idle();
  });
}

}  // namespace

bool HostReaches(const Driver& driver, uint64_t address) {
  uint64_t host = 0;
  return driver->cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) ==
             CUDA_SUCCESS &&
         host == address;
}

uint8_t* PlaceOfArrival(Executor& executor, const Command& command) {
  const uint32_t bytes = command.header.bulk_bytes;
  // While leases compete for the device, the token would be held as long as the client sends.
  if (bytes < kLeastBytes || !executor.gate().alone()) return nullptr;
  if (executor.exports().moving()) return nullptr;
  rgpuCopyHtoD_Request request;
  wire::Reader fields(command.head.data, command.head.size);
  if (!Get(fields, &request) || request.height != 1 || request.width != bytes) return nullptr;
  Target target;
  if (executor.Find(command, request.stream, &target) != CUDA_SUCCESS) return nullptr;
  uint64_t total = 0;
  const Rows rows{request.dst, request.pitch, request.width, request.height};
  if (CheckRows(executor, rows, &total) != CUDA_SUCCESS) return nullptr;
  if (!IsIdle(executor, *target.context)) return nullptr;
  if (!HostReaches(executor.driver(), request.dst)) return nullptr;
  executor.exports().BeginArrival();
  return reinterpret_cast<uint8_t*>(request.dst);
}

void CountArrival(Executor& executor, const Command& command, Stream& stream) {
  const uint64_t bytes = command.header.bulk_bytes;
  executor.gate().Spent(executor.copies().in->Predict(bytes));
  stream.arrived_bytes += bytes;
  const bool last = (command.header.flags & wire::kMore) == 0;
  if (!last && stream.arrived_bytes < kCreditBytes) return;
  stream.arrived_bytes = 0;
  executor.order().ReturnCreditsOf(stream);
  if (!last) executor.FlushNotices();
}

}  // namespace rgpu::exec
