// The hooks by which Python's tests compare their codec with the generated C++ codec.
#include "gen/codec.gen.h"
#include "gen/compiler.gen.h"
#include "gen/worker.gen.h"
#include "rgpu_common/native/native_abi.h"
#include "rgpu_common/native/native_round_trip.h"

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

int64_t rgpu_wire_channel(int compiler, uint32_t type, const uint8_t* body, size_t bytes,
                          uint8_t* out, size_t capacity) {
  int64_t result = -2;
  const auto visit = [&](auto message) {
    result = RoundTrip<decltype(message)>(body, bytes, out, capacity);
  };
  if (compiler != 0) {
    rgpu::wire::compiler::VisitMessage(type, visit);
  } else {
    rgpu::wire::worker::VisitMessage(type, visit);
  }
  return result;
}
