#include "rgpu_server/executor/objects.h"

#include "rgpu_common/native/base/ranges.h"

namespace rgpu::exec {

CUresult FixEvent(Context& context, Event* event) {
  if (event->fixed != nullptr) return CUDA_SUCCESS;
  if (event->current != nullptr) {
    event->fixed = event->current;
    event->fixed->fixed = true;
    return CUDA_SUCCESS;
  }
  auto made = std::make_shared<Point>(context.events, event->flags);
  made->fixed = true;
  const CUresult result = context.events->Take(event->flags, &made->event);
  if (result == CUDA_SUCCESS) event->fixed = std::move(made);
  return result;
}

CUresult Ranges::Add(uint64_t base, Range range) {
  range.serial = ++last_serial_;
  g_handles += ranges_.insert_or_assign(base, std::move(range)).second ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult Ranges::Check(uint64_t address, uint64_t bytes) const {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  uint64_t offset = address - it->first;
  if (offset > it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  while (bytes > it->second.bytes - offset) {
    const uint64_t end = it->first + it->second.bytes;
    bytes -= it->second.bytes - offset;
    offset = 0;
    const bool mapped = it->second.kind == Range::Kind::kMapped;
    ++it;
    const bool adjoins = mapped && it != ranges_.end() && it->first == end &&
                         it->second.kind == Range::Kind::kMapped;
    if (!adjoins) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

bool Ranges::At(uint64_t address, uint64_t* base, Range* range) const {
  const auto it = base::RangeAt(ranges_, address, [](const Range& one) { return one.bytes; });
  if (it == ranges_.end()) return false;
  *base = it->first;
  *range = it->second;
  return true;
}

CUresult Ranges::CheckRows(uint64_t address, uint64_t pitch, uint64_t width,
                           uint64_t height) const {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (height == 1) return Check(address, width);
  uint64_t bytes = 0;
  if (pitch < width || __builtin_mul_overflow(pitch, height - 1, &bytes) ||
      __builtin_add_overflow(bytes, width, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Check(address, bytes);
}

Range* Ranges::Find(uint64_t base) {
  const auto it = ranges_.find(base);
  return it == ranges_.end() ? nullptr : &it->second;
}

bool Ranges::Take(uint64_t base, Range* range) {
  const auto it = ranges_.find(base);
  if (it == ranges_.end()) return false;
  *range = std::move(it->second);
  ranges_.erase(it);
  --g_handles;
  return true;
}

}  // namespace rgpu::exec
