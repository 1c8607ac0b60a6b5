// Hostile bytes to a probe responder, and to whoever measures.  First byte: which; 0 is a whole
// connection, the others a message each.
#include <cstdlib>
#include <vector>

#include "fuzz/memory_connection.h"
#include "rgpu_common/native/probe/session.h"

namespace {

namespace probe = rgpu::probe;

template <typename Message>
void RoundTrip(const uint8_t* data, size_t size) {
  Message message{};
  rgpu::wire::Reader reader(data, size);
  if (!Get(reader, &message)) return;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  Put(writer, message);
  // What was accepted has one form only.
  if (encoded.size() != size || std::memcmp(encoded.data(), data, size) != 0) std::abort();
}

// More than this many bytes would say nothing new and take long.
constexpr int64_t kBytes = 1U << 20;

void Serve(const uint8_t* data, size_t size) {
  rgpu::fuzz::MemoryConnection connection(data, size, 1000);
  int64_t charged = 0;
  probe::Session session(&connection, {}, {.bytes = kBytes, .idle_ms = 10}, [&](int64_t bytes) {
    charged += bytes;
    return true;
  });
  session.Serve(nullptr);
  if (charged < 0 || charged > kBytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t which = data[0] % 5;
  ++data;
  --size;
  if (which == 0) Serve(data, size);
  if (which == 1) RoundTrip<probe::Request>(data, size);
  if (which == 2) RoundTrip<probe::Offer>(data, size);
  if (which == 3) RoundTrip<probe::Order>(data, size);
  if (which == 4) RoundTrip<std::vector<probe::Arrival>>(data, size);
  return 0;
}
