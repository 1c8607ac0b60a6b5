// A hostile head into the generated codec.  First two bytes: opcode; third: request or reply.
#include <cstdlib>
#include <vector>

#include "gen/codec.gen.h"

namespace {

template <typename Message>
void RoundTrip(const uint8_t* data, size_t size) {
  Message message{};
  rgpu::wire::Reader reader(data, size);
  if (!Get(reader, &message)) return;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  Put(writer, message);
  if (encoded.size() != size) std::abort();
  if (size > 0 && std::memcmp(encoded.data(), data, size) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto opcode = static_cast<uint16_t>(data[0] | data[1] << 8);
  const bool is_reply = (data[2] & 1) != 0;
  rgpu::VisitCommand(opcode, [&](auto traits) {
    using Traits = decltype(traits);
    if (is_reply) {
      RoundTrip<typename Traits::Reply>(data + 3, size - 3);
    } else {
      RoundTrip<typename Traits::Request>(data + 3, size - 3);
    }
  });
  return 0;
}
