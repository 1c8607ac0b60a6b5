// A hostile head into the handshake's decoders.  First byte: which message.
#include <cstdlib>
#include <vector>

#include "gen/handshake.gen.h"

namespace {

template <typename Message>
void RoundTrip(const uint8_t* data, size_t size) {
  Message message{};
  rgpu::wire::Reader reader(data, size);
  if (!rgpu::wire::Get(reader, &message)) return;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  rgpu::wire::Put(writer, message);
  if constexpr (std::is_same_v<Message, rgpu::wire::Hello>) {
    if (message.major != rgpu::wire::kWireMajor) return;
  }
  // What was accepted has one form only.
  if (encoded.size() != size || std::memcmp(encoded.data(), data, size) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t which = data[0] % 6;
  ++data;
  --size;
  if (which == 0) RoundTrip<rgpu::wire::Hello>(data, size);
  if (which == 1) RoundTrip<rgpu::wire::Welcome>(data, size);
  if (which == 2) RoundTrip<rgpu::wire::Refused>(data, size);
  if (which == 3) RoundTrip<rgpu::wire::Attach>(data, size);
  if (which == 4) RoundTrip<rgpu::wire::Shm>(data, size);
  if (which == 5) RoundTrip<rgpu::wire::Resume>(data, size);
  return 0;
}
