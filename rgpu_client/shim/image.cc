#include "rgpu_client/shim/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "rgpu_common/native/base/fd.h"

namespace rgpu::shim {
namespace {

// The first bytes of each kind of image, in memory order.
constexpr std::string_view kWrapperMagic = "\xb1\x43\x62\x46";
constexpr std::string_view kFatbinMagic = "\x50\xed\x55\xba";
constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";
constexpr std::string_view kLinkedMagic = "RGPUIMG1";
constexpr uint64_t kPage = 4096;
// The most section or program headers that are read: far more than any compiler makes.
constexpr uint64_t kMaxHeaders = 1U << 16;

// True if the byte at `address` can be read. Never faults.
bool CanRead(const uint8_t* address) {
  uint8_t byte = 0;
  iovec to = {&byte, 1};
  iovec from = {const_cast<uint8_t*>(address), 1};
  const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  if (got == 1) return true;
  if (errno != ENOSYS && errno != EPERM) return false;
  // process_vm_readv is forbidden here. Writing to a pipe also makes the kernel check the memory.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return true;
  const bool readable = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

// Notes that an image of `bytes` is too long to be sent, if it is.
bool IsTooLong(uint64_t bytes, bool* too_long) {
  *too_long = bytes > kMaxImageBytes;
  return *too_long;
}

// Copies a header from memory that may end anywhere. False: it is not readable as a whole.
template <typename T>
bool Load(const uint8_t* at, T* value) {
  if (ReadableBytes(at, sizeof(T)) < sizeof(T)) return false;
  memcpy(value, at, sizeof(T));
  return true;
}

std::optional<Image> Checked(const uint8_t* data, uint64_t bytes, bool* too_long) {
  if (bytes == 0 || IsTooLong(bytes, too_long) || ReadableBytes(data, bytes) < bytes) {
    return std::nullopt;
  }
  return Image{data, bytes};
}

// The length of a fatbin, from its header.
std::optional<Image> MeasureFatbin(const uint8_t* data, bool* too_long) {
  struct {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t payload_bytes;
  } header;
  static_assert(sizeof(header) == 16);
  if (!Load(data, &header) || IsTooLong(header.payload_bytes, too_long)) return std::nullopt;
  return Checked(data, header.header_bytes + header.payload_bytes, too_long);
}

// The length of an ELF file: the end of the last section, segment or header table.
std::optional<Image> MeasureElf(const uint8_t* data, bool* too_long) {
  Elf64_Ehdr header;
  if (!Load(data, &header) || header.e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  uint64_t end = header.e_ehsize;
  const auto extend = [&end, too_long](uint64_t offset, uint64_t bytes) {
    if (IsTooLong(std::max(offset, bytes), too_long)) return false;
    end = std::max(end, offset + bytes);
    return true;
  };
  if (!extend(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize) ||
      !extend(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize)) {
    return std::nullopt;
  }
  for (uint64_t i = 0; i < std::min<uint64_t>(header.e_shnum, kMaxHeaders); ++i) {
    Elf64_Shdr section;
    if (!Load(data + header.e_shoff + i * header.e_shentsize, &section)) return std::nullopt;
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
    if (!extend(section.sh_offset, section.sh_size)) return std::nullopt;
  }
  for (uint64_t i = 0; i < std::min<uint64_t>(header.e_phnum, kMaxHeaders); ++i) {
    Elf64_Phdr segment;
    if (!Load(data + header.e_phoff + i * header.e_phentsize, &segment)) return std::nullopt;
    if (!extend(segment.p_offset, segment.p_filesz)) return std::nullopt;
  }
  return Checked(data, end, too_long);
}

// The length of PTX text, including the zero byte that ends it.
std::optional<Image> MeasureText(const uint8_t* data, bool* too_long) {
  uint64_t bytes = 0;
  while (bytes < kMaxImageBytes) {
    const uint64_t in_page = kPage - (reinterpret_cast<uint64_t>(data) + bytes) % kPage;
    if (!CanRead(data + bytes)) return std::nullopt;
    const void* zero = memchr(data + bytes, 0, in_page);
    if (zero != nullptr) {
      const auto length = static_cast<uint64_t>(static_cast<const uint8_t*>(zero) - data);
      if (length == 0 || IsTooLong(length + 1, too_long)) return std::nullopt;
      return Image{data, length + 1};
    }
    bytes += in_page;
  }
  *too_long = true;
  return std::nullopt;
}

// True if `data` begins with `magic`. Reads no byte after the first that differs: a short text may
// end at the end of mapped memory.
bool BeginsWith(const uint8_t* data, std::string_view magic) {
  for (size_t i = 0; i < magic.size(); ++i) {
    if (!CanRead(data + i) || data[i] != static_cast<uint8_t>(magic[i])) return false;
  }
  return true;
}

std::optional<Image> MeasureLinked(const uint8_t* data, bool* too_long) {
  uint64_t total = 0;
  return Load(data + kLinkedMagic.size(), &total) ? Checked(data, total, too_long) : std::nullopt;
}

std::optional<Image> MeasureWrapped(const uint8_t* data, bool* too_long) {
  uint64_t pointer = 0;
  if (!Load(data + 8, &pointer)) return std::nullopt;
  const auto* fatbin = reinterpret_cast<const uint8_t*>(pointer);
  return BeginsWith(fatbin, kFatbinMagic) ? MeasureFatbin(fatbin, too_long) : std::nullopt;
}

}  // namespace

uint64_t ReadableBytes(const void* address, uint64_t bytes) {
  const auto* at = static_cast<const uint8_t*>(address);
  uint64_t readable = 0;
  while (readable < bytes) {
    if (!CanRead(at + readable)) return readable;
    readable += kPage - (reinterpret_cast<uint64_t>(at) + readable) % kPage;
  }
  return bytes;
}

std::optional<Image> MeasureImage(const void* image, bool* too_long) {
  bool ignored = false;
  if (too_long == nullptr) too_long = &ignored;
  *too_long = false;
  const auto* data = static_cast<const uint8_t*>(image);
  if (BeginsWith(data, kWrapperMagic)) return MeasureWrapped(data, too_long);
  if (BeginsWith(data, kFatbinMagic)) return MeasureFatbin(data, too_long);
  if (BeginsWith(data, kElfMagic)) return MeasureElf(data, too_long);
  if (BeginsWith(data, kLinkedMagic)) return MeasureLinked(data, too_long);
  return MeasureText(data, too_long);
}

int ReadImageFile(const char* path, std::vector<uint8_t>* bytes) {
  const base::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno;
  struct stat facts{};
  if (fstat(file.get(), &facts) != 0) return errno;
  if (!S_ISREG(facts.st_mode)) return EISDIR;
  if (static_cast<uint64_t>(facts.st_size) > kMaxImageBytes) return EFBIG;
  bytes->resize(static_cast<size_t>(facts.st_size));
  size_t done = 0;
  while (done < bytes->size()) {
    const ssize_t got = read(file.get(), bytes->data() + done, bytes->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    done += static_cast<size_t>(got);
  }
  bytes->push_back(0);  // ends PTX text; other images hold their length in their headers
  return 0;
}

}  // namespace rgpu::shim
