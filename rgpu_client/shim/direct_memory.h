// The memory of the emulated device, mapped into this process, so that a large copy is one memcpy.
// The mapping does not lie at the device's addresses: a program that dereferences a device pointer
// by mistake must crash, as it would with a real device.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

class DirectMemory {
 public:
  // Maps the memory file that the server sent with the rings. False: the file does not fit the
  // band, or mmap fails; copies then go through the ring.
  bool Map(const base::UniqueFd& fd, const wire::Band& band);
  // The place in this process of the device's [address, address + bytes). Null: it is not mapped.
  uint8_t* At(uint64_t address, uint64_t bytes) const;
  bool mapped() const { return at_ != nullptr; }
  // Maps the device's pages [base, base + bytes) at their own addresses, over a reservation of
  // these, for memory that the program uses in place. False: they are not in the file.
  bool Show(uint64_t base, uint64_t bytes) const;

 private:
  uint8_t* at_ = nullptr;  // never unmapped: threads may copy until the process ends
  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
  base::UniqueFd file_;
};

}  // namespace rgpu::shim
