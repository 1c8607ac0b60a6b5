#include "rgpu_server/gateway/http2/chunks.h"

#include <random>
#include <string>
#include <string_view>

#include "tests/native/testing.h"

namespace rgpu::gateway::http2 {
namespace {

using Fault = ChunkReader::Fault;

// What a tunnel brings; "|" is the end of data.
struct Heard final : ChunkSink {
  void Data(const uint8_t* data, size_t bytes) override {
    said.append(reinterpret_cast<const char*>(data), bytes);
  }
  void EndOfData() override { said += '|'; }

  std::string said;
};

std::string Message(std::string_view body, char compressed = 0) {
  std::string message(1, compressed);
  for (int shift = 24; shift >= 0; shift -= 8) {
    message += static_cast<char>(body.size() >> shift);
  }
  return message + std::string(body);
}

// A string with zeros in it.
template <size_t kSize>
std::string Bytes(const char (&text)[kSize]) {
  return {text, kSize - 1};
}

Fault Take(ChunkReader* reader, std::string_view bytes) {
  return reader->Take(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

TEST(chunks, data_is_handed_on_however_it_is_cut) {
  std::string sent = Message("") + Message("\x0a\x05hello") + Message(Bytes("\x10\x00"));
  uint8_t head[kChunkHeadBytes];
  WriteChunkHead(head, 5);
  sent += std::string(reinterpret_cast<char*>(head), sizeof head) + "world";
  // With fields of later releases, in every form, and with `end` before the data.
  sent += Message(Bytes("\x18\x96\x01\x22\x03xyz\x2d....\x31........\x10\x01\x0a\x01!"));
  std::mt19937 chance(7);
  for (int round = 0; round < 200; ++round) {
    Heard heard;
    ChunkReader reader(&heard);
    for (size_t at = 0; at < sent.size();) {
      const size_t some = std::min<size_t>(sent.size() - at, 1 + chance() % 9);
      CHECK(Take(&reader, std::string_view(sent).substr(at, some)) == Fault::kNone);
      at += some;
    }
    CHECK(heard.said == "helloworld!|");
  }
}

TEST(chunks, a_head_says_how_long_its_data_is) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{16384}, kMaxDataBytes}) {
    Heard heard;
    ChunkReader reader(&heard);
    std::string sent(kChunkHeadBytes, 0);
    WriteChunkHead(reinterpret_cast<uint8_t*>(sent.data()), bytes);
    sent += std::string(bytes, 'x') + Message("\x0a\x01y");
    CHECK(Take(&reader, sent) == Fault::kNone);
    CHECK_EQ(heard.said.size(), bytes + 1);
  }
}

TEST(chunks, what_is_said_without_data) {
  Heard heard;
  ChunkReader reader(&heard);
  CHECK(reader.Take(kHeartbeat, sizeof kHeartbeat) == Fault::kNone);
  CHECK(heard.said.empty());
  CHECK(reader.Take(kEndOfData, sizeof kEndOfData) == Fault::kNone);
  CHECK(heard.said == "|");
}

TEST(chunks, what_is_no_chunk_is_refused) {
  const std::string ten(10, static_cast<char>(0xFF));
  for (const std::string& body :
       {Bytes("\xff\xff\xff"), Bytes("\x0a"), Bytes("\x0a\x05"),
        Bytes("\x0a\x05"
              "abc"),
        Bytes("\x0a\x80"), Bytes("\x10"), Bytes("\x10\x80"), Bytes("\x0b"), Bytes("\x0e"),
        Bytes("\x00\x00"), Bytes("\x2d..."), "\x10" + ten + "\x01", "\x0a" + ten}) {
    Heard heard;
    ChunkReader reader(&heard);
    const std::string sent = Message(body);
    CHECK(Take(&reader, sent) == Fault::kMalformed);
    // Nothing is taken after that.
    CHECK(Take(&reader, Message("\x0a\x01x")) == Fault::kMalformed);
    CHECK(heard.said.empty());
  }
  Heard heard;
  ChunkReader packed(&heard);
  CHECK(Take(&packed, Message("\x0a\x01x", 1)) == Fault::kCompressed);
  ChunkReader large(&heard);
  CHECK(Take(&large, Message(std::string(kMaxMessageBytes + 1, 'x'))) == Fault::kTooLong);
}

}  // namespace
}  // namespace rgpu::gateway::http2
