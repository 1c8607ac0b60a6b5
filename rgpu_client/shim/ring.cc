#include "rgpu_client/shim/ring.h"

#include "gen/handshake.gen.h"
#include "rgpu_client/shim/say.h"

namespace rgpu::shim {
namespace {

constexpr int kSendTimeoutMs = 10000;

void SayWhyNot(const std::string& why) {
  Say("no shared memory with the server: %s; the session uses the Unix socket instead",
      why.c_str());
}

bool Answer(transport::ShmConnection& connection, const wire::Shm& answer) {
  return transport::SendHandshake(connection, wire::Handshake::kShm, answer, kSendTimeoutMs);
}

}  // namespace

bool AgreeOnRing(transport::ShmConnection& connection, const transport::FrameReader& reader,
                 const wire::Welcome& welcome) {
  const uint64_t granted = wire::Granted(welcome.grants, wire::WishKey::kShm);
  std::string why;
  if (granted == 0) {
    why = "the server's release is older than shm:";
  } else if ((granted & wire::kRingGranted) == 0) {
    const int error = static_cast<int>(granted >> wire::kRingErrnoShift & 0xFFFF);
    why = "the server cannot make any (" + base::ErrnoText(error) + ")";
  }
  if (!why.empty()) {
    connection.StayOnSocket();
    SayWhyNot(why);
    return true;
  }
  // A worker sends nothing between WELCOME and the first command. If bytes have arrived all the
  // same, the session stays on the socket.
  const bool mapped = !reader.has_buffered() && connection.Map(&why);
  if (!Answer(connection, {mapped, why})) return false;
  if (mapped) {
    connection.Switch();
  } else {
    connection.StayOnSocket();
    SayWhyNot(why);
  }
  return true;
}

}  // namespace rgpu::shim
