// A hostile image into the reader of fatbins (with LZ4), linked images and texts, which runs inside
// a session.
#include <cstdlib>
#include <vector>

#include "rgpu_emu/device/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An own allocation: what lies behind it may not be read.
  const std::vector<uint8_t> image(data, data + size);
  rgpu::emu::ImageText text;
  const rgpu::emu::Outcome outcome = rgpu::emu::ReadSizedImage(image, &text);
  if (outcome.ok() && text.ptx.empty()) std::abort();
  return 0;
}
