#include "rgpu_emu/device/image.h"

#include <algorithm>
#include <cstring>

#include "rgpu_emu/device/fatbin.h"

namespace rgpu::emu {
namespace {

constexpr char kContainerMagic[] = "RGPUIMG1";
constexpr size_t kContainerHeader = 20;
constexpr uint64_t kLargestImage = uint64_t{1} << 32;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr uint32_t kWrapperMagic = 0x466243B1;

constexpr char kSendPtx[] =
    "the emulated device runs PTX, and this image holds only machine code (SASS) for NVIDIA GPUs. "
    "Make the program send PTX: numba-cuda: set RGPU_HIDE_NVJITLINK=1 before `rgpu run`, or "
    "uninstall nvidia-nvjitlink ; CuPy: set CUPY_COMPILE_WITH_PTX=1 ; cuda.core: "
    "Program.compile(\"ptx\") ; nvcc: -arch=compute_80";

template <class T>
T Read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

bool IsContainer(const uint8_t* at) { return std::memcmp(at, kContainerMagic, 8) == 0; }

Outcome ReadContainer(std::span<const uint8_t> image, ImageText* text) {
  const auto count = Read<uint32_t>(image.data() + 16);
  size_t at = kContainerHeader;
  for (uint32_t i = 0; i < count; ++i) {
    if (image.size() - at < 4) return Damaged("a linked image ends in the middle");
    const auto bytes = Read<uint32_t>(image.data() + at);
    at += 4;
    if (image.size() - at < bytes) return Damaged("a linked image ends in the middle");
    text->ptx.emplace_back(reinterpret_cast<const char*>(image.data() + at), bytes);
    at += bytes;
  }
  if (image.size() - at >= 4)
    text->max_registers = TighterBound(text->max_registers, Read<uint32_t>(image.data() + at));
  return text->ptx.empty() ? Damaged("a linked image without PTX") : Outcome{};
}

// The text without the space and the comments at its start.
std::string_view Trimmed(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
    size_t end = std::string_view::npos;
    if (text.starts_with("//")) {
      end = text.find('\n');
    } else if (text.starts_with("/*")) {
      end = text.find("*/", 2);
      if (end != std::string_view::npos) end += 2;
    } else {
      return text;
    }
    text.remove_prefix(std::min(end, text.size()));
  }
}

// PTX begins with its version. NVIDIA's driver takes nothing else for PTX.
bool LooksLikePtx(std::string_view text) { return Trimmed(text).starts_with(".version"); }

Outcome ReadText(std::string_view ptx, ImageText* text) {
  if (!LooksLikePtx(ptx)) return Damaged("the image is neither PTX, nor a fatbin, nor an ELF file");
  text->ptx.emplace_back(ptx);
  return {};
}

}  // namespace

uint32_t TighterBound(uint32_t a, uint32_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

Outcome ReadImage(const void* image, ImageText* text) {
  if (image == nullptr) return {CUDA_ERROR_INVALID_VALUE, "the image is null"};
  const auto* at = static_cast<const uint8_t*>(image);
  // Text may be shorter than a magic number, and no magic number contains a zero byte.
  if (strnlen(static_cast<const char*>(image), 4) == 4) {
    const auto magic = Read<uint32_t>(at);
    if (magic == kElfMagic) return {CUDA_ERROR_NO_BINARY_FOR_GPU, kSendPtx};
    if (magic == kWrapperMagic) return ReadImage(Read<const void*>(at + 8), text);
    if (magic == kFatbinMagic) return ReadSizedImage({at, FatbinBytes(at)}, text);
    if (magic == Read<uint32_t>(reinterpret_cast<const uint8_t*>(kContainerMagic)) &&
        IsContainer(at)) {
      const auto bytes = Read<uint64_t>(at + 8);
      if (bytes < kContainerHeader || bytes > kLargestImage)
        return Damaged("a linked image with a bad length");
      return ReadContainer({at, bytes}, text);
    }
  }
  return ReadText(
      {static_cast<const char*>(image), strnlen(static_cast<const char*>(image), kLargestImage)},
      text);
}

Outcome ReadSizedImage(std::span<const uint8_t> image, ImageText* text) {
  if (image.empty()) return Damaged("an empty image");
  if (image.size() >= 4 && Read<uint32_t>(image.data()) == kElfMagic)
    return {CUDA_ERROR_NO_BINARY_FOR_GPU, kSendPtx};
  if (image.size() >= 4 && Read<uint32_t>(image.data()) == kFatbinMagic) {
    Outcome outcome = ReadFatbin(image, &text->ptx);
    if (outcome.result == CUDA_ERROR_NO_BINARY_FOR_GPU && outcome.message.empty())
      outcome.message = kSendPtx;
    return outcome;
  }
  if (image.size() >= kContainerHeader && IsContainer(image.data())) {
    if (Read<uint64_t>(image.data() + 8) != image.size())
      return Damaged("a linked image with a bad length");
    return ReadContainer(image, text);
  }
  const auto* ptx = reinterpret_cast<const char*>(image.data());
  return ReadText({ptx, strnlen(ptx, image.size())}, text);
}

std::vector<uint8_t> WriteContainer(const ImageText& text) {
  std::vector<uint8_t> out;
  const auto put = [&out](const void* data, size_t bytes) {
    const auto* from = static_cast<const uint8_t*>(data);
    out.insert(out.end(), from, from + bytes);
  };
  uint64_t total = kContainerHeader;
  for (const std::string& ptx : text.ptx) total += 4 + ptx.size();
  if (text.max_registers != 0) total += 4;
  const auto count = static_cast<uint32_t>(text.ptx.size());
  put(kContainerMagic, 8);
  put(&total, sizeof(total));
  put(&count, sizeof(count));
  for (const std::string& ptx : text.ptx) {
    const auto bytes = static_cast<uint32_t>(ptx.size());
    put(&bytes, sizeof(bytes));
    put(ptx.data(), ptx.size());
  }
  if (text.max_registers != 0) put(&text.max_registers, sizeof(text.max_registers));
  return out;
}

}  // namespace rgpu::emu
