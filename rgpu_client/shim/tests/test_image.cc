// Tests of the lengths of images, also of images that mapped memory cuts short.
#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "rgpu_client/shim/image.h"
#include "rgpu_client/shim/tests/check.h"

namespace {

using rgpu::shim::MeasureImage;

constexpr size_t kPage = 4096;

// Bytes that end at the end of a page, with an unreadable page after them.
class AtPageEnd {
 public:
  explicit AtPageEnd(const std::string& bytes) {
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + 2 * kPage, kPage, PROT_NONE);
    data_ = base_ + 2 * kPage - bytes.size();
    memcpy(data_, bytes.data(), bytes.size());
  }
  ~AtPageEnd() { munmap(base_, 3 * kPage); }
  const uint8_t* data() const { return data_; }

 private:
  uint8_t* base_;
  uint8_t* data_;
};

std::string Fatbin(uint64_t payload) {
  std::string bytes(16, '\0');
  const uint32_t magic = 0xba55ed50;
  const uint16_t header = 16;
  memcpy(bytes.data(), &magic, 4);
  memcpy(bytes.data() + 6, &header, 2);
  memcpy(bytes.data() + 8, &payload, 8);
  return bytes;
}

std::string Elf(uint64_t section_offset, uint64_t section_bytes) {
  std::string bytes(sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr), '\0');
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ehsize = sizeof(header);
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 1;
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = section_offset;
  section.sh_size = section_bytes;
  memcpy(bytes.data(), &header, sizeof(header));
  memcpy(bytes.data() + sizeof(header), &section, sizeof(section));
  return bytes;
}

}  // namespace

TEST(PtxTextEndsAtItsZero) {
  const auto image = MeasureImage(".version 8.0\n");
  CHECK(image && image->bytes == strlen(".version 8.0\n") + 1);
  CHECK(!MeasureImage(""));
}

TEST(TextWithoutAnEndIsNoImage) {
  const AtPageEnd text(std::string(100, 'x'));
  CHECK(!MeasureImage(text.data()));
  const AtPageEnd two("ab");  // shorter than the first bytes that tell the kinds apart
  CHECK(!MeasureImage(two.data()));
  const AtPageEnd ended(std::string("ab\0", 3));
  const auto image = MeasureImage(ended.data());
  CHECK(image && image->bytes == 3);
}

TEST(FatbinSaysItsLength) {
  const AtPageEnd whole(Fatbin(64) + std::string(64, 'p'));
  const auto image = MeasureImage(whole.data());
  CHECK(image && image->bytes == 80 && image->data == whole.data());
  const AtPageEnd cut(Fatbin(65) + std::string(64, 'p'));
  CHECK(!MeasureImage(cut.data()));
  const AtPageEnd huge(Fatbin(~0ULL));
  CHECK(!MeasureImage(huge.data()));
  const AtPageEnd header_cut(Fatbin(0).substr(0, 12));
  CHECK(!MeasureImage(header_cut.data()));
}

TEST(WrapperIsFollowed) {
  const AtPageEnd fatbin(Fatbin(8) + "12345678");
  std::string wrapper(24, '\0');
  const uint32_t magic = 0x466243b1;
  const auto pointer = reinterpret_cast<uint64_t>(fatbin.data());
  memcpy(wrapper.data(), &magic, 4);
  memcpy(wrapper.data() + 8, &pointer, 8);
  const auto image = MeasureImage(wrapper.data());
  CHECK(image && image->data == fatbin.data() && image->bytes == 24);
  const uint64_t nowhere = 8;
  memcpy(wrapper.data() + 8, &nowhere, 8);
  CHECK(!MeasureImage(wrapper.data()));
}

TEST(ElfEndsWithItsLastPart) {
  const AtPageEnd whole(Elf(128, 32) + std::string(32, 's'));
  const auto image = MeasureImage(whole.data());
  CHECK(image && image->bytes == 160);
  const AtPageEnd cut(Elf(128, 33) + std::string(32, 's'));
  CHECK(!MeasureImage(cut.data()));
  const AtPageEnd huge(Elf(~0ULL, 1));
  CHECK(!MeasureImage(huge.data()));
}

TEST(AnImageThatIsTooLongIsToldFromOneThatIsCut) {
  bool too_long = true;
  const AtPageEnd cut(Fatbin(65));
  CHECK(!MeasureImage(cut.data(), &too_long) && !too_long);
  const AtPageEnd fatbin(Fatbin(rgpu::shim::kMaxImageBytes + 1));
  CHECK(!MeasureImage(fatbin.data(), &too_long) && too_long);
  const AtPageEnd elf(Elf(rgpu::shim::kMaxImageBytes, 1));
  CHECK(!MeasureImage(elf.data(), &too_long) && too_long);
  const AtPageEnd unknown(std::string(100, 'x'));
  CHECK(!MeasureImage(unknown.data(), &too_long) && !too_long);
}

TEST(LinkedImageSaysItsLength) {
  std::string bytes = "RGPUIMG1" + std::string(8, '\0') + "body";
  const uint64_t total = bytes.size();
  memcpy(bytes.data() + 8, &total, 8);
  const AtPageEnd whole(bytes);
  const auto image = MeasureImage(whole.data());
  CHECK(image && image->bytes == total);
}

TEST(ReadableBytesStopAtTheGap) {
  const AtPageEnd bytes("0123456789");
  CHECK(rgpu::shim::ReadableBytes(bytes.data(), 10) == 10);
  CHECK(rgpu::shim::ReadableBytes(bytes.data(), 11) == 10);
}
