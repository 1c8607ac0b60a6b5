#include "rgpu_client/shim/calls/pinned_params.h"

#include <cstring>

#include "rgpu_client/shim/calls/visible_memory.h"

namespace rgpu::shim {
namespace {

constexpr uint32_t kWord = sizeof(CUdeviceptr);

// Replaces the word at `offset` by `word`. The program's own buffer stays as it is.
void Replace(uint32_t offset, CUdeviceptr word, std::vector<uint8_t>* buffer,
             PackedParams* packed) {
  if (packed->data != buffer->data()) {
    const auto* bytes = static_cast<const uint8_t*>(packed->data);
    buffer->assign(bytes, bytes + packed->bytes);
    packed->data = buffer->data();
  }
  std::memcpy(buffer->data() + offset, &word, kWord);
}

// The same as UseImages, for the page-locked memory of one session.
CUresult UseImagesOf(const AddressMap& addresses, const Here& here, std::vector<uint8_t>* buffer,
                     PackedParams* packed) {
  if (!addresses.any_pinned()) return CUDA_SUCCESS;
  for (uint32_t offset = 0; offset + kWord <= packed->bytes; offset += kWord) {
    CUdeviceptr word = 0;
    std::memcpy(&word, static_cast<const uint8_t*>(packed->data) + offset, kWord);
    if (!addresses.MayBePinned(word)) continue;
    const auto range = addresses.Find(word);
    if (!range || range->kind != RangeKind::kPinned) continue;
    Range image;
    if (const CUresult status = ImageOf(here, *range, &image); status != CUDA_SUCCESS) {
      return status;
    }
    Replace(offset, image.base + (word - range->base), buffer, packed);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult UseImages(const Here& here, std::vector<uint8_t>* buffer, PackedParams* packed) {
  for (Session* const owner : LiveSessions()) {
    const CUresult status = UseImagesOf(owner->addresses(), here, buffer, packed);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
