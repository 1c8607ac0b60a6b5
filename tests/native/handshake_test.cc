#include "gen/handshake.gen.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"

#include <string>
#include <vector>

#include "tests/native/testing.h"

namespace rgpu::wire {
namespace {

template <typename T>
std::vector<uint8_t> Encode(const T& message) {
  std::vector<uint8_t> bytes;
  Writer writer(&bytes);
  Put(writer, message);
  return bytes;
}

template <typename T>
bool Decode(const std::vector<uint8_t>& bytes, T* message) {
  Reader reader(bytes.data(), bytes.size());
  return Get(reader, message);
}

Hello FullHello() {
  Hello hello;
  hello.release = "0.1.0";
  hello.access_token = "token";
  hello.lease_key = "lease";
  hello.tenant = "tenant \xC3\xA4";
  hello.container = "container";
  hello.program = "/usr/bin/python3";
  hello.pid = 42;
  hello.memory_bytes = 1U << 30;
  hello.device_bands = {{0x200000000000, 0x100000000}, {0x300000000000, 0x100000000}};
  hello.pinned_bands = {{0x400000000000, 0x10000000}};
  hello.opcodes = {{0x0301, 0x12345678}, {0x0302, 9}};
  hello.wishes = {{1, 250000}, {99, UINT64_MAX}};
  return hello;
}

Welcome FullWelcome() {
  Welcome welcome;
  welcome.session = 7;
  welcome.secret.fill(0x5A);
  welcome.release = "0.1.0";
  welcome.band = {0x200000000000, 0x100000000};
  welcome.missing = {0x0301};
  welcome.devices.resize(2);
  welcome.devices[0].name = "rgpu emulated device";
  welcome.devices[0].attributes = {{1, 1024}, {2, -1}};
  welcome.note = "hello";
  return welcome;
}

TEST(handshake, round_trips) {
  Hello hello;
  const std::vector<uint8_t> bytes = Encode(FullHello());
  CHECK(Decode(bytes, &hello));
  CHECK(Encode(hello) == bytes);
  CHECK_EQ(hello.tenant, "tenant \xC3\xA4");
  CHECK(hello.opcodes[1] == (OpcodeHash{0x0302, 9}));
  Welcome welcome;
  const std::vector<uint8_t> more = Encode(FullWelcome());
  CHECK(Decode(more, &welcome));
  CHECK(Encode(welcome) == more);
  Welcome granted = FullWelcome();
  granted.grants = {{6, 1}, {99, 2}};
  CHECK(Decode(Encode(granted), &welcome));
  CHECK(Granted(welcome.grants, WishKey::kShm) == 1 &&
        Granted(welcome.grants, WishKey::kResumable) == 0);
  CHECK(Decode(more, &welcome) && welcome.grants.empty());
  std::vector<uint8_t> none = more;
  none.resize(none.size() + 4);
  CHECK(!Decode(none, &welcome));
  Shm shm;
  CHECK(Decode(Encode(Shm{1, "reason"}), &shm) && shm.accepted == 1 && shm.reason == "reason");
  CHECK(!Decode(Encode(Shm{2, ""}), &shm));
  Attach attach;
  attach.session = 9;
  Attach got;
  CHECK(Decode(Encode(attach), &got) && got.session == 9);
}

TEST(handshake, refuses_every_truncation_and_anything_left_over) {
  std::vector<std::vector<uint8_t>> whole = {Encode(FullHello()), Encode(FullWelcome()),
                                             Encode(Attach{}), Encode(Refused{"no"})};
  for (size_t which = 0; which < whole.size(); ++which) {
    const auto decodes = [which](const std::vector<uint8_t>& bytes) {
      Hello hello;
      Welcome welcome;
      Attach attach;
      Refused refused;
      return which == 0   ? Decode(bytes, &hello)
             : which == 1 ? Decode(bytes, &welcome)
             : which == 2 ? Decode(bytes, &attach)
                          : Decode(bytes, &refused);
    };
    std::vector<uint8_t> bytes = whole[which];
    CHECK(decodes(bytes));
    for (size_t size = 0; size < bytes.size(); ++size) {
      CHECK(!decodes({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)}));
    }
    bytes.push_back(0);
    CHECK(!decodes(bytes));
  }
}

TEST(handshake, keeps_its_bounds) {
  const auto refused = [](void (*spoil)(Hello*)) {
    Hello hello = FullHello();
    spoil(&hello);
    Hello got;
    return !Decode(Encode(hello), &got);
  };
  CHECK(!refused([](Hello* h) { h->access_token.assign(kMaxAccessTokenBytes, 'x'); }));
  CHECK(refused([](Hello* h) { h->access_token.assign(kMaxAccessTokenBytes + 1, 'x'); }));
  CHECK(refused([](Hello* h) { h->tenant.assign(kMaxNameBytes + 1, 'x'); }));
  CHECK(refused([](Hello* h) { h->tenant = "a\nb"; }));
  CHECK(refused([](Hello* h) { h->tenant = std::string("a\0b", 3); }));
  CHECK(refused([](Hello* h) { h->tenant = "\xFF"; }));
  CHECK(refused([](Hello* h) { h->device_bands.assign(kMaxBands + 1, Band{1, 1}); }));
  CHECK(refused([](Hello* h) { h->device_bands = {{UINT64_MAX, 2}}; }));
  CHECK(refused([](Hello* h) { h->wishes.assign(kMaxWishes + 1, Wish{}); }));
  CHECK(refused([](Hello* h) { h->opcodes.assign(kMaxOpcodes + 1, OpcodeHash{}); }));
  Welcome many = FullWelcome();
  many.devices.resize(kMaxDevices + 1);
  Welcome got;
  CHECK(!Decode(Encode(many), &got));
}

TEST(handshake, a_stranger_and_another_major) {
  std::vector<uint8_t> bytes = Encode(FullHello());
  bytes[0] ^= 1;
  Hello hello;
  CHECK(!Decode(bytes, &hello));
  Hello next;
  next.major = kWireMajor + 1;
  next.release = "a later layout";
  CHECK(Decode(Encode(next), &hello));
  CHECK_EQ(hello.major, kWireMajor + 1);
  CHECK(hello.release.empty());
}

TEST(handshake, clean_text) {
  CHECK(IsCleanText("plain \xE2\x82\xAC \xF0\x9F\x98\x80"));
  for (const char* bad :
       {"\x7F", "a\tb", "\xC0\xAF", "\xED\xA0\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\x80", "\xC3", "\xE2\x82", "\xF0\x80\x80\x80", "\xC2\x80",
        "a\xC2\x9B\x32J",
        // U+00AD, U+202E, U+2066, U+200B, U+FEFF, U+E0041: hidden, or they reorder what follows.
        "a\xC2\xAD", "\xE2\x80\xAE", "\xE2\x81\xA6", "\xE2\x80\x8B", "\xEF\xBB\xBF",
        "\xF3\xA0\x81\x81"}) {
    CHECK(!IsCleanText(bad));
    CHECK(IsCleanText(CleanText(bad, 100)));
  }
  CHECK(IsCleanText("\xC2\xA0"));
  CHECK_EQ(CleanText("a\nb\xFF", 100), "a?b?");
  CHECK_EQ(CleanText("\xC2\x9B", 100), "?");
  CHECK_EQ(CleanText("ab\xE2\x82\xAC", 4), "ab");
  CHECK_EQ(CleanText("ab\xE2\x82\xAC", 5), "ab\xE2\x82\xAC");
  CHECK_EQ(CleanText("b\xE2\x80\xAE\xE2\x82\xAC", 5), "b?\xE2\x82\xAC");
}

TEST(handshake, clean_sentences) {
  const auto clean = [](std::string text) {
    text.resize(CleanSentences(text.data(), text.size()));
    return text;
  };
  CHECK_EQ(clean(""), "");
  CHECK_EQ(clean("a\tb\n\xE4\xB8\xAD \xF0\x9F\x98\x80"), "a\tb\n\xE4\xB8\xAD \xF0\x9F\x98\x80");
  CHECK_EQ(clean("a\rb\x1B[2J\xC2\x9B"), "a?b?[2J?");
  CHECK_EQ(clean("\xE2\x80\xAE\xE4\xB8\xAD\xF3\xA0\x81\x81 end"), "?\xE4\xB8\xAD? end");
  CHECK_EQ(clean("cut \xE4\xB8"), "cut ??");
}

TEST(handshake, secrets) {
  std::array<uint8_t, kSecretBytes> a{};
  std::array<uint8_t, kSecretBytes> b{};
  CHECK(SameSecret(a, b));
  b[31] = 1;
  CHECK(!SameSecret(a, b));
}

}  // namespace
}  // namespace rgpu::wire
