#include "rgpu_client/shim/calls/pinned_params.h"

#include <cstring>

#include "rgpu_client/shim/calls/visible_memory.h"

namespace rgpu::shim {
namespace {

constexpr uint32_t kWord = sizeof(CUdeviceptr);

// Replaces the word at `offset` by `word`. The program's own buffer stays as it is.
void Replace(uint32_t offset, uint64_t word, std::vector<uint8_t>* buffer, PackedParams* packed) {
  if (packed->data != buffer->data()) {
    const auto* bytes = static_cast<const uint8_t*>(packed->data);
    buffer->assign(bytes, bytes + packed->bytes);
    packed->data = buffer->data();
  }
  std::memcpy(buffer->data() + offset, &word, kWord);
}

// The same as UseImage, for the page-locked memory of one session.
CUresult UseImageOf(const AddressMap& addresses, const Here& here, uint64_t* address) {
  if (!addresses.MayBePinned(*address)) return CUDA_SUCCESS;
  const auto range = addresses.Find(*address);
  if (!range || range->kind != RangeKind::kPinned) return CUDA_SUCCESS;
  Range image;
  const CUresult status = ImageOf(here, *range, &image);
  if (status == CUDA_SUCCESS) *address = image.base + (*address - range->base);
  return status;
}

// The same as UseImages, for the page-locked memory of one session.
CUresult UseImagesOf(const AddressMap& addresses, const Here& here, std::vector<uint8_t>* buffer,
                     PackedParams* packed) {
  if (!addresses.any_pinned()) return CUDA_SUCCESS;
  for (uint32_t offset = 0; offset + kWord <= packed->bytes; offset += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const uint8_t*>(packed->data) + offset, kWord);
    const uint64_t given = word;
    const CUresult status = UseImageOf(addresses, here, &word);
    if (status != CUDA_SUCCESS) return status;
    if (word != given) Replace(offset, word, buffer, packed);
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

CUresult UseImage(const Here& here, uint64_t* address) {
  const uint64_t given = *address;
  for (Session* const owner : LiveSessions()) {
    const CUresult status = UseImageOf(owner->addresses(), here, address);
    if (status != CUDA_SUCCESS || *address != given) return status;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
