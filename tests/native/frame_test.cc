#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::kSoonMs;
using testing::MakePair;
using testing::OverBoth;
using testing::Pair;
using wire::ByteView;
using wire::FrameHeader;

FrameHeader Command(uint16_t opcode, uint64_t seq) {
  FrameHeader header;
  header.opcode = opcode;
  header.seq = seq;
  header.thread = 1;
  return header;
}

std::vector<uint8_t> Pattern(size_t bytes, unsigned seed) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = seed * 2654435761U + 1;
  for (uint8_t& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

// Adds a frame whose head is `text` and whose bulk is a pattern.
void Add(FrameBuffer* out, uint64_t seq, const std::string& text, size_t bulk_bytes = 0) {
  wire::Writer head = out->Begin(Command(7, seq));
  head.PutRaw(text.data(), text.size());
  const std::vector<uint8_t> bulk = Pattern(bulk_bytes, static_cast<unsigned>(seq));
  CHECK(out->EndWithBulk(bulk.data(), bulk.size()));
}

void Expect(FrameReader* reader, uint64_t seq, const std::string& text) {
  FrameHeader header;
  ByteView head;
  CHECK(reader->Next(&header, &head, kSoonMs) == ReadState::kFrame);
  CHECK_EQ(header.seq, seq);
  CHECK_EQ(header.opcode, 7);
  CHECK_EQ(header.thread, 1U);
  CHECK_EQ(std::string(head.text()), text);
}

void ExpectBulk(FrameReader* reader, uint64_t seq, size_t bytes) {
  CHECK_EQ(reader->bulk_left(), bytes);
  std::vector<uint8_t> got(bytes);
  CHECK(reader->ReadBulk(got.data(), got.size(), kSoonMs) == BulkState::kDone);
  CHECK(got == Pattern(bytes, static_cast<unsigned>(seq)));
  CHECK_EQ(reader->bulk_left(), 0U);
}

TEST(frames, byte_by_byte) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    FrameBuffer out;
    for (uint64_t seq = 1; seq <= 20; ++seq) Add(&out, seq, std::string(seq, 'h'), seq * 7 % 50);
    std::thread sender([&] {
      for (size_t i = 0; i < out.size(); ++i) testing::SendBytes(*pair.a, out.data() + i, 1);
    });
    FrameReader reader(pair.b.get());
    for (uint64_t seq = 1; seq <= 20; ++seq) {
      Expect(&reader, seq, std::string(seq, 'h'));
      if (seq % 2 == 0) ExpectBulk(&reader, seq, seq * 7 % 50);  // else Next skips it
    }
    sender.join();
  });
}

TEST(frames, many_in_one_write_are_there_for_polls) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    FrameReader reader(pair.b.get());
    FrameHeader header;
    ByteView head;
    CHECK(reader.Next(&header, &head, 0) == ReadState::kTimeout);
    CHECK(reader.Next(&header, &head, 1) == ReadState::kTimeout);
    FrameBuffer out;
    for (uint64_t seq = 1; seq <= 64; ++seq) Add(&out, seq, "launch");
    CHECK_EQ(out.frames(), 64U);
    testing::SendBytes(*pair.a, out.data(), out.size());
    Expect(&reader, 1, "launch");
    for (uint64_t seq = 2; seq <= 64; ++seq) Expect(&reader, seq, "launch");
    CHECK(!reader.has_buffered());
    CHECK(reader.Next(&header, &head, 0) == ReadState::kTimeout);
  });
}

TEST(frames, wake_ends_next) {
  Pair pair = MakePair("unix");
  FrameReader reader(pair.b.get());
  FrameHeader header;
  ByteView head;
  std::thread waker([&] { pair.b->Wake(); });
  CHECK(reader.Next(&header, &head, kSoonMs, true) == ReadState::kWoken);
  waker.join();
  FrameBuffer out;
  Add(&out, 1, "after");
  testing::SendBytes(*pair.a, out.data(), out.size());
  Expect(&reader, 1, "after");
}

TEST(frames, large_bulk_between_small_frames) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    std::thread sender([&] {
      FrameBuffer out;
      for (uint64_t seq = 1; seq <= 12; ++seq) {
        Add(&out, seq, "copy", seq % 3 == 0 ? 0 : wire::kMaxBulkBytes - seq);
      }
      testing::SendBytes(*pair.a, out.data(), out.size());
    });
    FrameReader reader(pair.b.get());
    for (uint64_t seq = 1; seq <= 12; ++seq) {
      Expect(&reader, seq, "copy");
      ExpectBulk(&reader, seq, seq % 3 == 0 ? 0 : wire::kMaxBulkBytes - seq);
    }
    sender.join();
  });
}

TEST(frames, bulk_by_rows_keeps_the_head) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    const size_t row = 1000;
    const size_t rows = 900;
    FrameBuffer out;
    Add(&out, 3, "the head", row * rows);
    Add(&out, 4, "next");
    std::thread sender([&] { testing::SendBytes(*pair.a, out.data(), out.size()); });
    FrameReader reader(pair.b.get());
    FrameHeader header;
    ByteView head;
    CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kFrame);
    const std::vector<uint8_t> expected = Pattern(row * rows, 3);
    std::vector<uint8_t> got(row);
    for (size_t i = 0; i < rows; ++i) {
      CHECK(reader.ReadBulk(got.data(), row, kSoonMs) == BulkState::kDone);
      CHECK(std::memcmp(got.data(), expected.data() + i * row, row) == 0);
    }
    CHECK_EQ(std::string(head.text()), "the head");
    Expect(&reader, 4, "next");
    sender.join();
  });
}

TEST(frames, a_bad_destination_keeps_the_stream_in_step) {
  testing::NeedsGuardedCopies();
  OverBoth([](const std::string& kind) {
    for (const size_t bulk : {size_t{100}, size_t{20000}, size_t{wire::kMaxBulkBytes}}) {
      Pair pair = MakePair(kind);
      FrameBuffer out;
      Add(&out, 1, "faulty", bulk);
      Add(&out, 2, "next", bulk);
      std::thread sender([&] { testing::SendBytes(*pair.a, out.data(), out.size()); });
      const testing::HalfMapped half;
      FrameReader reader(pair.b.get());
      reader.set_guarded(true);
      Expect(&reader, 1, "faulty");
      uint8_t* to = half.data() + half.page() - 50;
      CHECK(reader.ReadBulk(to, bulk, kSoonMs) == BulkState::kFault);
      CHECK_EQ(reader.bulk_left(), 0U);
      Expect(&reader, 2, "next");
      ExpectBulk(&reader, 2, bulk);
      sender.join();
    }
  });
}

TEST(frames, skip_and_partial_reads) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    FrameBuffer out;
    for (uint64_t seq = 1; seq <= 3; ++seq) Add(&out, seq, "bulk", 300000);
    std::thread sender([&] { testing::SendBytes(*pair.a, out.data(), out.size()); });
    FrameReader reader(pair.b.get());
    Expect(&reader, 1, "bulk");
    CHECK(reader.SkipBulk(kSoonMs) == BulkState::kDone);
    Expect(&reader, 2, "bulk");
    uint8_t some[10];
    CHECK(reader.ReadBulk(some, sizeof some, kSoonMs) == BulkState::kDone);
    CHECK(std::memcmp(some, Pattern(10, 2).data(), 10) == 0);
    Expect(&reader, 3, "bulk");
    ExpectBulk(&reader, 3, 300000);
    sender.join();
  });
}

TEST(frames, what_is_no_frame_ends_the_stream) {
  const std::pair<const char*, std::function<void(FrameHeader*)>> wrong[] = {
      {"kind 0", [](FrameHeader* h) { h->kind = wire::Kind{0}; }},
      {"kind 8", [](FrameHeader* h) { h->kind = wire::Kind{8}; }},
      {"long head", [](FrameHeader* h) { h->payload_bytes = wire::kMaxHeadBytes + 1; }},
      {"long bulk",
       [](FrameHeader* h) { h->payload_bytes = h->bulk_bytes = wire::kMaxBulkBytes + 1; }},
      {"bulk > payload", [](FrameHeader* h) { h->bulk_bytes = 1; }},
      {"all ones", [](FrameHeader* h) { h->payload_bytes = h->bulk_bytes = UINT32_MAX; }},
  };
  for (const auto& [name, spoil] : wrong) {
    Pair pair = MakePair("unix");
    FrameHeader bad = Command(1, 1);
    spoil(&bad);
    FrameBuffer good;
    Add(&good, 1, "good");
    testing::SendBytes(*pair.a, good.data(), good.size());
    testing::SendBytes(*pair.a, &bad, sizeof bad);
    testing::SendBytes(*pair.a, good.data(), good.size());
    FrameReader reader(pair.b.get());
    Expect(&reader, 1, "good");
    FrameHeader header;
    ByteView head;
    for (int i = 0; i < 2; ++i) {
      if (reader.Next(&header, &head, kSoonMs) != ReadState::kMalformed) {
        testing::Fail(__FILE__, __LINE__, name);
      }
    }
  }
}

TEST(frames, a_cut_stream_is_closed) {
  OverBoth([](const std::string& kind) {
    FrameBuffer out;
    Add(&out, 1, "head", 100);
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{39}, size_t{40}, size_t{43}}) {
      Pair pair = MakePair(kind);
      if (cut > 0) testing::SendBytes(*pair.a, out.data(), cut);
      pair.a.reset();
      FrameReader reader(pair.b.get());
      FrameHeader header;
      ByteView head;
      CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kClosed);
      CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kClosed);
    }
    Pair pair = MakePair(kind);
    testing::SendBytes(*pair.a, out.data(), out.size() - 1);
    FrameReader reader(pair.b.get());
    Expect(&reader, 1, "head");
    uint8_t got[100];
    CHECK(reader.ReadBulk(got, sizeof got, 1) == BulkState::kTimeout);
    pair.a.reset();
    CHECK(reader.SkipBulk(kSoonMs) == BulkState::kClosed);
  });
}

TEST(frames, the_buffer_keeps_the_limits) {
  FrameBuffer out;
  Add(&out, 1, "first");
  const size_t before = out.size();
  const std::string long_head(wire::kMaxHeadBytes + 1, 'x');
  out.Begin(Command(1, 2)).PutRaw(long_head.data(), long_head.size());
  CHECK(!out.End());
  out.Begin(Command(1, 2));
  CHECK(!out.End(wire::kMaxBulkBytes + 1));
  out.Begin(Command(1, 2));
  CHECK(!out.EndWithBulk(long_head.data(), wire::kMaxBulkBytes + 1));
  out.Begin(Command(1, 2)).Put(uint32_t{5});
  out.Cancel();
  CHECK_EQ(out.size(), before);
  CHECK_EQ(out.frames(), 1U);
  const std::string most(wire::kMaxHeadBytes, 'y');
  Add(&out, 2, most);
  Pair pair = MakePair("unix");
  std::thread sender([&] { testing::SendBytes(*pair.a, out.data(), out.size()); });
  FrameReader reader(pair.b.get(), 1);  // as small as it lets itself be made
  Expect(&reader, 1, "first");
  Expect(&reader, 2, most);
  sender.join();
  out.clear();
  CHECK(out.empty() && out.frames() == 0);
}

}  // namespace
}  // namespace rgpu::transport
