// The hooks by which Python's tests compare their codec with the generated C++ codec.
#include "gen/codec.gen.h"
#include "rgpu_common/native/native_abi.h"

namespace {

template <typename Message>
int64_t RoundTrip(const uint8_t* head, size_t bytes, uint8_t* out, size_t capacity) {
  Message message{};
  rgpu::wire::Reader reader(head, bytes);
  if (!Get(reader, &message)) return -1;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  Put(writer, message);
  if (encoded.size() > capacity) return -3;
  if (!encoded.empty()) std::memcpy(out, encoded.data(), encoded.size());
  return static_cast<int64_t>(encoded.size());
}

}  // namespace

int64_t rgpu_wire_roundtrip(uint16_t opcode, int is_reply, const uint8_t* head, size_t bytes,
                            uint8_t* out, size_t capacity) {
  int64_t result = -2;
  rgpu::VisitCommand(opcode, [&](auto traits) {
    using Traits = decltype(traits);
    result = is_reply != 0 ? RoundTrip<typename Traits::Reply>(head, bytes, out, capacity)
                           : RoundTrip<typename Traits::Request>(head, bytes, out, capacity);
  });
  return result;
}
