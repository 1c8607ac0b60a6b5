// Handlers: images that the client sends. They are assembled here, checked against their own
// headers, and used up by a load or link.
#include <algorithm>
#include <cstring>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/images.h"

namespace rgpu::exec {

namespace {

constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint32_t kElfMagic = 0x464c457f;
constexpr uint32_t kWrapperMagic = 0x466243b1;  // an address follows in this format
constexpr uint32_t kLinkedMagic = 0x55504752;   // "RGPU": output of the emulated device's linker

template <typename T>
T Load(const std::vector<uint8_t>& bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The driver takes an image's length from its header, so the header must not claim more than was
// sent.
bool HeaderFits(const std::vector<uint8_t>& bytes, uint64_t total) {
  if (total < 4) return true;
  const auto magic = Load<uint32_t>(bytes, 0);
  if (magic == kFatbinMagic) {
    // u32 magic, u16 version, u16 header bytes, u64 bytes behind the header
    if (total < 16) return false;
    const uint64_t header = Load<uint16_t>(bytes, 6);
    const auto body = Load<uint64_t>(bytes, 8);
    return header >= 16 && header <= total && body <= total - header;
  }
  if (magic == kElfMagic) {
    if (total < 64) return false;
    const auto sections = Load<uint64_t>(bytes, 40);
    const uint64_t table = uint64_t{Load<uint16_t>(bytes, 58)} * Load<uint16_t>(bytes, 60);
    return sections <= total && table <= total - sections;
  }
  if (magic == kLinkedMagic) return total >= 20 && Load<uint64_t>(bytes, 8) == total;
  if (magic == kWrapperMagic) return false;
  return true;  // text; a zero byte follows it
}

}  // namespace

CUresult TakeImage(Executor& executor, uint64_t id, std::shared_ptr<Image>* image) {
  const CUresult result = executor.objects().images.Take(id, image);
  if (result != CUDA_SUCCESS) return result;
  executor.objects().image_bytes -= (*image)->total;
  if ((*image)->received != (*image)->total) return CUDA_ERROR_INVALID_IMAGE;
  return HeaderFits((*image)->bytes, (*image)->total) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult Run(Executor& executor, const Command& command, const rgpuImagePut_Request& request,
             rgpuImagePut_Reply*) {
  Image* image = nullptr;
  CUresult result = executor.objects().images.Find(request.image, &image);
  if (result == kDropped) return kDropped;
  if (request.offset == 0 && image == nullptr) {
    result = executor.objects().images.CanAdd(request.image);
    if (result == CUDA_ERROR_INVALID_HANDLE) return result;
    if (result == CUDA_SUCCESS &&
        request.total > kMaxImageBytes - std::min(kMaxImageBytes, executor.objects().image_bytes)) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
      executor.objects().images.AddFailed(request.image);
      return result;
    }
    auto made = std::make_shared<Image>();
    made->total = request.total;
    made->bytes.reserve(request.total + 1);
    executor.objects().image_bytes += request.total;
    image = made.get();
    executor.objects().images.Add(request.image, std::move(made));
  }
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Pieces must arrive in order, without gaps.
  if (request.total != image->total || request.offset != image->received ||
      command.bulk.size > image->total - image->received) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  image->bytes.insert(image->bytes.end(), command.bulk.data, command.bulk.data + command.bulk.size);
  image->received += command.bulk.size;
  if (image->received == image->total) image->bytes.push_back(0);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::exec
