#include <elf.h>

#include <cstring>

#include "rgpu_emu/device/exec/elf_reloc.h"
#include "rgpu_emu/device/exec/symbols.h"
#include "tests/emu_exec/device.h"
#include "tests/native/testing.h"

namespace rgpu::emu::testing {
namespace {

TEST(loader, finds_symbols_and_protects_code) {
  std::unique_ptr<LoadedObject> object;
  const Outcome loaded = LoadedObject::Load(ReadObject("saxpy"), &object);
  CHECK_EQ(loaded.message, std::string());
  CHECK(object->IsCode(object->Symbol("rgpu_block")));
  auto* counter = static_cast<uint64_t*>(object->Symbol("g_counter", 8));
  auto* pointer = static_cast<uint64_t**>(object->Symbol("g_pointer", 8));
  CHECK(counter != nullptr && pointer != nullptr && !object->IsCode(counter));
  CHECK_EQ(*counter, 40u);
  CHECK_EQ(*pointer, counter);
  *counter = 41;  // data is writable
  CHECK(object->Symbol("g_counter", 1 << 20) == nullptr);
  CHECK(object->Symbol("nothing") == nullptr);
}

TEST(loader, refuses_symbols_by_name) {
  std::unique_ptr<LoadedObject> object;
  const Outcome loaded = LoadedObject::Load(ReadObject("forbidden"), &object);
  CHECK_EQ(static_cast<int>(loaded.result), static_cast<int>(CUDA_ERROR_INVALID_IMAGE));
  CHECK(loaded.message.find("system") != std::string::npos);
  CHECK(RuntimeSymbol("memcpy") != 0 && RuntimeSymbol("dlopen") == 0 && RuntimeSymbol("") == 0);
}

TEST(loader, survives_every_cut) {
  const std::vector<uint8_t> whole = ReadObject("saxpy");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    std::unique_ptr<LoadedObject> object;
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
    CHECK(!LoadedObject::Load(cut, &object).ok());
  }
}

TEST(loader, survives_every_changed_byte) {
  const std::vector<uint8_t> whole = ReadObject("reduce");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0xff, 0x80, 0x01}) {
      std::vector<uint8_t> changed = whole;
      changed[at] = static_cast<uint8_t>(changed[at] ^ change);
      std::unique_ptr<LoadedObject> object;
      LoadedObject::Load(changed, &object);  // any answer but a crash
    }
  }
}

TEST(loader, kernels_are_checked) {
  std::shared_ptr<const Kernel> kernel;
  wire::compiler::Lowered code = CodeOf("reduce");
  code.kind = 7;
  CHECK(!Kernel::Make(code, 0, &kernel).ok());
  code.kind = kKernelLoop;
  CHECK(!Kernel::Make(code, 0, &kernel).ok());
  code = CodeOf("function");
  code.function_ordinals = {2};
  CHECK(!Kernel::Make(code, 3, &kernel).ok());
  code.function_ordinals = {1};
  CHECK(!Kernel::Make(code, 1, &kernel).ok());
  CHECK(Kernel::Make(code, 2, &kernel).ok());
  CHECK(kernel->functions()[0] == 0 && kernel->functions()[1] != 0);
}

uint32_t Patched(uint32_t type, uint32_t word, uint64_t place, uint64_t symbol, int64_t addend,
                 uint64_t got = 0) {
  CHECK(RelocateAarch64(type, {reinterpret_cast<uint8_t*>(&word), 4, place, symbol, addend, got,
                               0}) == RelocResult::kDone);
  return word;
}

// Expected words as LLVM's assembler encodes them.
TEST(loader, aarch64_relocations) {
  CHECK_EQ(Patched(R_AARCH64_CALL26, 0x94000000, 0x1000, 0x1100, 0), 0x94000040u);  // bl .+0x100
  CHECK_EQ(Patched(R_AARCH64_JUMP26, 0x14000000, 0x1000, 0xff0, 0), 0x17fffffcu);   // b .-0x10
  CHECK_EQ(Patched(R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0x1234, 0x5678, 0),
           0x90000020u);  // adrp x0, .+0x4000
  CHECK_EQ(Patched(R_AARCH64_ADD_ABS_LO12_NC, 0x91000000, 0, 0x5678, 0),
           0x9119e000u);  // add x0, x0, #0x678
  CHECK_EQ(Patched(R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400000, 0, 0x5678, 0),
           0xf9433c00u);  // ldr x0, [x0, #0x678]
  CHECK_EQ(Patched(R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000, 0, 0x5670, 0),
           0x3dc19c00u);  // ldr q0, [x0, #0x670]
  CHECK_EQ(Patched(R_AARCH64_LD64_GOT_LO12_NC, 0xf9400000, 0, 1, 0, 0x5678), 0xf9433c00u);
  uint32_t word = 0x94000000;
  RelocSite far = {reinterpret_cast<uint8_t*>(&word), 4, 0, 1u << 28, 0, 0, 0};
  CHECK(RelocateAarch64(R_AARCH64_CALL26, far) == RelocResult::kOverflow);
  far.room = 3;
  far.symbol = 4;
  CHECK(RelocateAarch64(R_AARCH64_CALL26, far) == RelocResult::kOutOfSection);
  CHECK(RelocateAarch64(9999, far) == RelocResult::kUnknown);
}

TEST(loader, x86_relocations) {
  uint8_t bytes[8] = {};
  const RelocSite site = {bytes, 8, 0x1000, 0x3000, -4, 0x5000, 0x4800};
  int32_t narrow;
  CHECK(RelocateX86(R_X86_64_PLT32, site) == RelocResult::kDone);
  std::memcpy(&narrow, bytes, 4);
  CHECK_EQ(narrow, 0x1ffc);
  CHECK(RelocateX86(R_X86_64_REX_GOTPCRELX, site) == RelocResult::kDone);
  std::memcpy(&narrow, bytes, 4);
  CHECK_EQ(narrow, 0x3ffc);
  RelocSite far = site;
  far.symbol = uint64_t{1} << 40;
  CHECK(RelocateX86(R_X86_64_PC32, far) == RelocResult::kOverflow);
  CHECK(RelocateX86(R_X86_64_32S, far) == RelocResult::kOverflow);
  far.room = 7;
  CHECK(RelocateX86(R_X86_64_64, far) == RelocResult::kOutOfSection);
  CHECK(RelocateX86(R_X86_64_TPOFF32, site) == RelocResult::kUnknown);
}

}  // namespace
}  // namespace rgpu::emu::testing
