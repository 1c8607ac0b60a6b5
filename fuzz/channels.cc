// A hostile body into the generated decoders of channels. First byte: the channel, 0 worker or 1
// compiler. Second byte: the type of the message.
#include <cstdlib>
#include <vector>

#include "gen/compiler.gen.h"
#include "gen/worker.gen.h"

namespace {

template <typename Message>
bool Read(const uint8_t* data, size_t size, Message* message) {
  rgpu::wire::Reader reader(data, size);
  return Get(reader, message);
}

template <typename Message>
std::vector<uint8_t> Write(const Message& message) {
  std::vector<uint8_t> bytes;
  rgpu::wire::Writer writer(&bytes);
  Put(writer, message);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto visit = [&](auto message) {
    if (!Read(data + 2, size - 2, &message)) return;
    // The reader of a line replaces bytes, so the first form may differ; every later one is equal.
    const std::vector<uint8_t> once = Write(message);
    decltype(message) again;
    if (!Read(once.data(), once.size(), &again) || Write(again) != once) std::abort();
  };
  if (data[0] % 2 == 0) {
    rgpu::wire::worker::VisitMessage(data[1], visit);
  } else {
    rgpu::wire::compiler::VisitMessage(data[1], visit);
  }
  return 0;
}
