// Registered memory that has a device address. Its pages are the program's own, so they cannot be
// protected: the device has an image of them, and both sides are compared.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gen/cuda_abi.gen.h"

namespace rgpu::shim {

class Session;
struct Context;

// Not locked: PagedMemory and its lock are around it.
class Mirrors {
 public:
  explicit Mirrors(Session& session) : session_(session) {}

  struct Mirror {
    uint64_t host = 0;
    uint64_t device = 0;
    uint64_t bytes = 0;
    uint32_t context = 0;
    std::vector<uint8_t> before;  // the bytes as both sides had them
    bool used = false;            // work that may write the image was posted since the last pull
  };

  // The image at `device` gets the bytes of the host's memory.
  CUresult Add(Context& context, uint64_t host, uint64_t device, uint64_t bytes);
  void Remove(uint64_t host);
  // Sends what the program has changed. `uses`: a command follows that may write the images.
  void Push(Context* preferred, bool uses);
  // Brings what the device has changed. `settled`: no work that may change the images is
  // outstanding.
  void Pull(bool settled);
  // True if an image has a byte in [address, address + bytes).
  bool Meets(uint64_t address, uint64_t bytes) const;
  bool empty() const { return mirrors_.empty(); }

 private:
  Context* ContextOf(const Mirror& mirror, Context* preferred) const;
  void PushOne(Mirror& mirror, Context& context) const;

  Session& session_;
  std::map<uint64_t, Mirror> mirrors_;  // by host address
};

}  // namespace rgpu::shim
