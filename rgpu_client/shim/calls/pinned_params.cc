#include "rgpu_client/shim/calls/pinned_params.h"

#include <cstring>

#include "rgpu_client/shim/calls/visible_memory.h"

namespace rgpu::shim {

CUresult UseImages(const Here& here, std::vector<uint8_t>* buffer, PackedParams* packed) {
  const AddressMap& addresses = here.session->addresses();
  if (!addresses.any_pinned()) return CUDA_SUCCESS;
  constexpr uint32_t kWord = sizeof(CUdeviceptr);
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
    if (packed->data != buffer->data()) {  // the program's own buffer stays as it is
      const auto* bytes = static_cast<const uint8_t*>(packed->data);
      buffer->assign(bytes, bytes + packed->bytes);
      packed->data = buffer->data();
    }
    word = image.base + (word - range->base);
    std::memcpy(buffer->data() + offset, &word, kWord);
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
