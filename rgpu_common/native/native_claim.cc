// The client's end of a claim, for Python: sends a HELLO and receives frames of the handshake.
#include <fcntl.h>

#include <cstring>
#include <memory>
#include <string>

#include "rgpu_common/native/base/text.h"
#include "rgpu_common/native/native_abi.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace {

using rgpu::base::CopyText;
using rgpu::transport::Connection;
using rgpu::transport::ReadState;

constexpr size_t kBufferBytes = 64U << 10;

struct Claim {
  explicit Claim(std::unique_ptr<Connection> made)
      : connection(std::move(made)), reader(connection.get(), kBufferBytes) {}

  std::unique_ptr<Connection> connection;
  rgpu::transport::FrameReader reader;
};

}  // namespace

void* rgpu_claim_open(const char* uri, int timeout_ms, const uint8_t* hello, size_t hello_bytes,
                      char* why, size_t why_bytes) {
  rgpu::transport::ConnectOptions options;
  options.timeout_ms = timeout_ms;
  rgpu::transport::ConnectError error;
  auto connection = rgpu::transport::Connect(uri, options, &error);
  if (connection == nullptr) {
    CopyText(error.sentence, why, why_bytes);
    return nullptr;
  }
  auto claim = std::make_unique<Claim>(std::move(connection));
  iovec part{const_cast<uint8_t*>(hello), hello_bytes};
  // A failure to send is not reported here. The next read fails as well, unless the server has sent
  // its reason.
  rgpu::transport::SendAll(*claim->connection, &part, 1, nullptr, timeout_ms);
  return claim.release();
}

int rgpu_claim_next(void* handle, int timeout_ms, uint16_t* opcode, int32_t* status, uint8_t* head,
                    size_t* head_bytes, char* why, size_t why_bytes) {
  auto* claim = static_cast<Claim*>(handle);
  rgpu::wire::FrameHeader header;
  rgpu::wire::ByteView view;
  const ReadState state = claim->reader.Next(&header, &view, timeout_ms);
  if (state == ReadState::kTimeout || state == ReadState::kWoken) return 0;
  const bool handshake = state == ReadState::kFrame && header.kind == rgpu::wire::Kind::kHandshake;
  if (!handshake || view.size > *head_bytes) {
    CopyText(claim->connection->LostReason(), why, why_bytes);
    return -1;
  }
  *opcode = header.opcode;
  *status = header.status;
  std::memcpy(head, view.data, view.size);
  *head_bytes = view.size;
  return 1;
}

int rgpu_claim_descriptor(const void* handle, int lowest) {
  const int descriptor = static_cast<const Claim*>(handle)->connection->descriptor();
  if (descriptor < 0) return -1;
  const int copy = fcntl(descriptor, F_DUPFD, lowest);
  return copy >= 0 ? copy : fcntl(descriptor, F_DUPFD, 0);
}

void rgpu_claim_close(void* handle) { delete static_cast<Claim*>(handle); }
