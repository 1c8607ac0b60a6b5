#include "rgpu_emu/device/exec/elf_reloc.h"

#include <elf.h>

#include <cstring>
#include <limits>

namespace rgpu::emu {
namespace {

template <typename T>
RelocResult Store(const RelocSite& site, T value) {
  if (site.room < sizeof(T)) return RelocResult::kOutOfSection;
  std::memcpy(site.where, &value, sizeof(T));
  return RelocResult::kDone;
}

RelocResult StoreSigned32(const RelocSite& site, uint64_t value) {
  const auto wide = static_cast<int64_t>(value);
  const auto narrow = static_cast<int32_t>(wide);
  return narrow == wide ? Store(site, narrow) : RelocResult::kOverflow;
}

RelocResult StoreUnsigned32(const RelocSite& site, uint64_t value) {
  if (value > std::numeric_limits<uint32_t>::max()) return RelocResult::kOverflow;
  return Store(site, static_cast<uint32_t>(value));
}

// Replaces the bits of `mask` in a 32-bit instruction.
RelocResult Patch(const RelocSite& site, uint32_t mask, uint32_t bits) {
  if (site.room < 4) return RelocResult::kOutOfSection;
  uint32_t word;
  std::memcpy(&word, site.where, 4);
  word = (word & ~mask) | (bits & mask);
  std::memcpy(site.where, &word, 4);
  return RelocResult::kDone;
}

RelocResult PatchBranch(const RelocSite& site, unsigned bits, unsigned shift) {
  const auto distance =
      static_cast<int64_t>(site.symbol + static_cast<uint64_t>(site.addend) - site.place);
  const int64_t limit = int64_t{1} << (bits + 1);
  if (distance % 4 != 0 || distance < -limit || distance >= limit) return RelocResult::kOverflow;
  const uint32_t mask = ((uint32_t{1} << bits) - 1) << shift;
  return Patch(site, mask, static_cast<uint32_t>(distance >> 2) << shift);
}

RelocResult PatchPage(const RelocSite& site, uint64_t target) {
  const auto pages =
      static_cast<int64_t>((target & ~uint64_t{4095}) - (site.place & ~uint64_t{4095})) >> 12;
  if (pages < -(int64_t{1} << 20) || pages >= (int64_t{1} << 20)) return RelocResult::kOverflow;
  const auto value = static_cast<uint32_t>(pages);
  const uint32_t low = (value & 3) << 29;
  const uint32_t high = ((value >> 2) & 0x7ffff) << 5;
  return Patch(site, 0x60ffffe0, low | high);
}

// Stores the low 12 bits of an address into the 12-bit immediate of a load, store or add, divided
// by 1 << scale.
RelocResult PatchLow12(const RelocSite& site, uint64_t target, unsigned scale) {
  const auto low = static_cast<uint32_t>(target & 4095);
  if ((low & ((1u << scale) - 1)) != 0) return RelocResult::kOverflow;
  return Patch(site, 0xfffu << 10, (low >> scale) << 10);
}

}  // namespace

RelocResult RelocateX86(uint32_t type, const RelocSite& site) {
  const auto addend = static_cast<uint64_t>(site.addend);
  const uint64_t absolute = site.symbol + addend;
  switch (type) {
    case R_X86_64_NONE:
      return RelocResult::kDone;
    case R_X86_64_64:
      return Store(site, absolute);
    case R_X86_64_32:
      return StoreUnsigned32(site, absolute);
    case R_X86_64_32S:
      return StoreSigned32(site, absolute);
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      return StoreSigned32(site, absolute - site.place);
    case R_X86_64_PC64:
      return Store(site, absolute - site.place);
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return StoreSigned32(site, site.got_slot + addend - site.place);
    case R_X86_64_GOTOFF64:
      return Store(site, absolute - site.got_base);
    case R_X86_64_GOTPC32:
      return StoreSigned32(site, site.got_base + addend - site.place);
    case R_X86_64_GOTPC64:
      return Store(site, site.got_base + addend - site.place);
    case R_X86_64_GOT64:
      return Store(site, site.got_slot - site.got_base + addend);
    case R_X86_64_PLTOFF64:
      return Store(site, absolute - site.got_base);
    default:
      return RelocResult::kUnknown;
  }
}

RelocResult RelocateAarch64(uint32_t type, const RelocSite& site) {
  const uint64_t absolute = site.symbol + static_cast<uint64_t>(site.addend);
  const uint64_t got = site.got_slot + static_cast<uint64_t>(site.addend);
  switch (type) {
    case R_AARCH64_NONE:
      return RelocResult::kDone;
    case R_AARCH64_ABS64:
      return Store(site, absolute);
    case R_AARCH64_ABS32:
      return StoreUnsigned32(site, absolute);
    case R_AARCH64_PREL64:
      return Store(site, absolute - site.place);
    case R_AARCH64_PREL32:
      return StoreSigned32(site, absolute - site.place);
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
      return PatchBranch(site, 26, 0);
    case R_AARCH64_CONDBR19:
      return PatchBranch(site, 19, 5);
    case R_AARCH64_TSTBR14:
      return PatchBranch(site, 14, 5);
    case R_AARCH64_ADR_PREL_PG_HI21:
      return PatchPage(site, absolute);
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
      return PatchLow12(site, absolute, 0);
    case R_AARCH64_LDST16_ABS_LO12_NC:
      return PatchLow12(site, absolute, 1);
    case R_AARCH64_LDST32_ABS_LO12_NC:
      return PatchLow12(site, absolute, 2);
    case R_AARCH64_LDST64_ABS_LO12_NC:
      return PatchLow12(site, absolute, 3);
    case R_AARCH64_LDST128_ABS_LO12_NC:
      return PatchLow12(site, absolute, 4);
    case R_AARCH64_ADR_GOT_PAGE:
      return PatchPage(site, got);
    case R_AARCH64_LD64_GOT_LO12_NC:
      return PatchLow12(site, got, 3);
    default:
      return RelocResult::kUnknown;
  }
}

}  // namespace rgpu::emu
