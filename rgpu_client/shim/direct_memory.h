// The device's memory of this session, mapped here, so that large copies are one memcpy.  It lies
// where nothing else of the program points to, not at the addresses of the device: a program that
// follows a device pointer by mistake dies of it, as it would with any device.
#pragma once

#include <cstdint>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

class DirectMemory {
 public:
  // Maps what the server sent with the rings.  False: it is no memory of that band, or the system
  // refuses; then copies go through the ring.
  bool Map(const base::UniqueFd& fd, const wire::Band& band);
  // Where [address, address + bytes) of the device is here; null: nowhere.
  uint8_t* At(uint64_t address, uint64_t bytes) const;
  bool mapped() const { return at_ != nullptr; }

 private:
  uint8_t* at_ = nullptr;  // never unmapped: threads may be copying until the process ends
  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace rgpu::shim
