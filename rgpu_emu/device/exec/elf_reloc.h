// Relocations for x86-64 and aarch64, as pure functions on one place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::emu {

struct RelocSite {
  uint8_t* where;     // the bytes to change
  size_t room;        // bytes from `where` to the end of the section
  uint64_t place;     // P: the address that `where` will have
  uint64_t symbol;    // S: for an external function, the address of its stub
  int64_t addend;     // A
  uint64_t got_slot;  // G: address of the slot that holds the symbol's address
  uint64_t got_base;
};

enum class RelocResult { kDone, kUnknown, kOutOfSection, kOverflow };

RelocResult RelocateX86(uint32_t type, const RelocSite& site);
RelocResult RelocateAarch64(uint32_t type, const RelocSite& site);

}  // namespace rgpu::emu
