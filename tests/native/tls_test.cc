#include <errno.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "rgpu_common/native/transport/tls/tls_connection.h"
#include "tests/native/pairs.h"
#include "tests/native/pieces.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::MakePair;
using testing::Noise;
using testing::Pair;
using testing::ReceivePieces;
using testing::SendPieces;

TEST(tls, carries_both_ways_at_once) {
  for (const bool small : {false, true}) {
    Pair pair = MakePair("tls", small);
    const size_t bytes = small ? 600'000 : 6'000'000;
    const auto up = Noise(bytes, 1), down = Noise(bytes, 2);
    std::thread threads[] = {
        std::thread([&] { SendPieces(*pair.a, up, 3); }),
        std::thread([&] { SendPieces(*pair.b, down, 4); }),
        std::thread([&] { ReceivePieces(*pair.a, down, 5); }),
    };
    ReceivePieces(*pair.b, up, 6);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(tls, a_record_that_did_not_fit_may_come_again_byte_by_byte) {
  Pair pair = MakePair("tls", true);
  const auto data = Noise(200'000, 8);
  const auto piece = [&](size_t at, size_t most) {
    return iovec{const_cast<uint8_t*>(data.data() + at), std::min(most, data.size() - at)};
  };
  size_t sent = 0;
  IoResult result;
  for (iovec part = piece(0, data.size()); (result = pair.a->TrySend(&part, 1)).ok();) {
    sent += result.bytes;
    part = piece(sent, data.size());
  }
  CHECK(result.state == IoState::kWouldBlock);
  std::thread reader([&] { ReceivePieces(*pair.b, data, 9); });
  while (sent < data.size()) {
    const iovec part = piece(sent, 1 + sent % 3);
    result = pair.a->TrySend(&part, 1);
    if (result.ok()) sent += result.bytes;
    if (!result.ok()) CHECK(pair.a->Wait(kWritable, 5000) != 0);
  }
  reader.join();
}

TEST(tls, ends_one_direction_after_what_was_sent) {
  Pair pair = MakePair("tls");
  testing::SendBytes(*pair.a, "last words", 10);
  pair.a->EndSending();
  char got[10] = {};
  testing::ReceiveBytes(*pair.b, got, sizeof got);
  CHECK(std::memcmp(got, "last words", 10) == 0);
  CHECK(pair.b->Recv(got, 1, 5000).state == IoState::kClosed);
  testing::SendBytes(*pair.b, "an answer", 9);
  testing::ReceiveBytes(*pair.a, got, 9);
}

TEST(tls, what_lies_decrypted_counts_as_readable) {
  Pair pair = MakePair("tls");
  const auto data = Noise(100'000, 7);
  std::thread sender([&] { testing::SendBytes(*pair.a, data.data(), data.size()); });
  char got = 0;
  for (const uint8_t expected : data) {
    CHECK(pair.b->Wait(kReadable, 5000) == kReadable);
    IoResult result = pair.b->TryRecv(&got, 1);
    if (result.state == IoState::kWouldBlock) result = pair.b->Recv(&got, 1, 5000);
    CHECK(result.ok() && static_cast<uint8_t>(got) == expected);
  }
  sender.join();
  CHECK_EQ(pair.b->Wait(kReadable, 0), 0);
}

TEST(tls, a_handshake_with_nobody_has_an_end) {
  std::string uri;
  const base::UniqueFd listener = testing::ListenTcp(8, &uri);
  ConnectError why;
  CHECK(Connect("tls:" + uri, {.timeout_ms = 50}, &why) == nullptr);
  CHECK_EQ(why.error, ETIMEDOUT);
  CHECK(why.sentence.find("does not answer as a TLS server") != std::string::npos);
}

}  // namespace
}  // namespace rgpu::transport
