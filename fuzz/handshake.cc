// A hostile head into the generated decoders of messages: the handshake, notices and control
// messages. First byte: which message.
#include <cstdlib>
#include <vector>

#include "gen/handshake.gen.h"
#include "gen/notices.gen.h"

namespace {

namespace wire = rgpu::wire;

template <typename Message>
void RoundTrip(const uint8_t* data, size_t size) {
  Message message{};
  rgpu::wire::Reader reader(data, size);
  if (!rgpu::wire::Get(reader, &message)) return;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  rgpu::wire::Put(writer, message);
  if constexpr (std::is_same_v<Message, wire::Hello> || std::is_same_v<Message, wire::Observe>) {
    if (message.major != rgpu::wire::kWireMajor) return;
  }
  // What was accepted has one form only.
  if (encoded.size() != size || std::memcmp(encoded.data(), data, size) != 0) std::abort();
}

// Reads the message with the number `which` in the list.
template <typename... Messages>
void OneOf(uint8_t which, const uint8_t* data, size_t size) {
  size_t number = 0;
  ((number++ == which % sizeof...(Messages) ? RoundTrip<Messages>(data, size) : void()), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  OneOf<wire::Hello, wire::Welcome, wire::Refused, wire::Attach, wire::Shm, wire::Resume,
        wire::Preface, wire::Resumed, wire::Credit, wire::Completed, wire::Sticky, wire::Pull,
        wire::Callback, wire::Log, wire::Compiled, wire::Cancel, wire::PullData, wire::CallbackDone,
        wire::CopyDone, wire::Observe, wire::Observed>(data[0], data + 1, size - 1);
  return 0;
}
