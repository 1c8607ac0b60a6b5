#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/base/large_copy.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/base/network.h"
#include "tests/native/testing.h"

namespace rgpu::base {
namespace {

size_t OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  CHECK(folder != nullptr);
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(base, deadlines) {
  CHECK(Deadline(-1).never() && !Deadline(-1).passed() && Deadline(-1).left_ms() == -1);
  CHECK(Deadline(0).passed() && Deadline(0).left_ms() == 0);
  const int left = Deadline(10000).left_ms();
  CHECK(left > 9000 && left <= 10000);
  CHECK(NowNs() <= NowNs());
}

TEST(base, time_in_which_a_waiter_did_not_run_does_not_count) {
  constexpr uint64_t kPatience = 10 * kMillisecond;
  constexpr uint64_t kBegun = 7 * kSecond;
  WaitedTime quiet(kBegun);
  CHECK(!quiet.Over(kBegun + kMillisecond / 2, kPatience));
  for (uint64_t ms = 1; ms < 10; ++ms) CHECK(!quiet.Over(kBegun + ms * kMillisecond, kPatience));
  CHECK(quiet.Over(kBegun + 10 * kMillisecond, kPatience));
  // Each pass is held up for a quarter of a second, and counts for a millisecond.
  WaitedTime held_up(kBegun);
  uint64_t now = kBegun;
  for (int pass = 1; pass < 10; ++pass) {
    CHECK(!held_up.Over(now += kSecond / 4, kPatience));
  }
  CHECK(held_up.Over(now + kSecond / 4, kPatience));
  // No wait lasts for ever.
  WaitedTime stopped(kBegun);
  CHECK(!stopped.Over(kBegun + WaitedTime::kMostNs - 1, kPatience));
  CHECK(stopped.Over(kBegun + WaitedTime::kMostNs, kPatience));
  CHECK(WaitedTime(kBegun).Over(kBegun, 0));
}

TEST(base, counts_machines_and_not_addresses) {
  CHECK_EQ(NetworkOf("192.0.2.7"), "192.0.2.7");
  CHECK_EQ(NetworkOf("::ffff:192.0.2.7"), "192.0.2.7");
  CHECK_EQ(NetworkOf("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  CHECK_EQ(NetworkOf("2001:db8:1:2:ffff::1"), "2001:db8:1:2::/64");
  CHECK_EQ(NetworkOf("local"), "local");
}

TEST(base, descriptors_travel_with_messages) {
  const size_t before = OpenDescriptors();
  {
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    const UniqueFd a(fds[0]);
    const UniqueFd b(fds[1]);
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    const UniqueFd out(ends[0]);
    UniqueFd in(ends[1]);
    CHECK(SendMessage(a.get(), "hello", 5, {in.get(), out.get()}));
    in.reset();
    char text[16] = {};
    std::vector<UniqueFd> got;
    CHECK_EQ(RecvMessage(b.get(), text, sizeof text, &got), 5);
    CHECK_EQ(std::string(text), "hello");
    CHECK_EQ(got.size(), 2U);
    CHECK((fcntl(got[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_EQ(write(got[0].get(), "x", 1), 1);
    CHECK_EQ(read(out.get(), text, 1), 1);

    // Too long for the receiver: refused whole, and its descriptors are closed.
    CHECK(SendMessage(a.get(), "too long", 8, {out.get()}));
    CHECK_EQ(RecvMessage(b.get(), text, 3, &got), -1);
    CHECK_EQ(errno, EMSGSIZE);
    CHECK(!SendMessage(a.get(), "x", 1, std::vector<int>(kMaxPassedFds + 1, out.get())));

    CHECK(SetNonBlocking(b.get(), true));
    CHECK_EQ(RecvMessage(b.get(), text, sizeof text, &got), -1);
    CHECK_EQ(errno, EAGAIN);
  }
  CHECK_EQ(OpenDescriptors(), before);
}

TEST(base, the_end_of_the_peer) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  UniqueFd a(fds[0]);
  const UniqueFd b(fds[1]);
  a.reset();
  char byte = 0;
  CHECK_EQ(RecvMessage(b.get(), &byte, 1, nullptr), 0);
  CHECK(!SendMessage(b.get(), "x", 1));
  CHECK_EQ(errno, EPIPE);
}

TEST(base, large_copies_are_whole) {
  constexpr size_t kBytes = (32U << 20) + 5000;
  std::vector<uint8_t> from(kBytes + 64);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / 251);
  for (const size_t out : {0U, 1U, 63U}) {
    for (const size_t in : {0U, 7U}) {
      for (const size_t bytes : {size_t{0}, size_t{100}, kBytes - 137, kBytes}) {
        std::vector<uint8_t> to(kBytes + 64, 0xEE);
        LargeCopy(to.data() + out, from.data() + in, bytes);
        CHECK(std::memcmp(to.data() + out, from.data() + in, bytes) == 0);
        CHECK(out == 0 || to[out - 1] == 0xEE);
        CHECK_EQ(to[out + bytes], 0xEE);
      }
    }
  }
}

TEST(base, what_is_no_level_is_said) {
  setenv("RGPU_LOG", "loud", 1);
  CHECK(LogLevelFault().starts_with("RGPU_LOG=loud is not off, error, info or debug"));
  for (const char* level : {"", "off", "error", "info", "debug", "Info"}) {
    setenv("RGPU_LOG", level, 1);
    CHECK(LogLevelFault().empty());
  }
  setenv("RGPU_LOG", "DEBUG", 1);
  SetLogLevelFromEnvironment();
  CHECK(LogOn(Level::kDebug));
  SetLogLevel(Level::kError);
  unsetenv("RGPU_LOG");
  CHECK(LogLevelFault().empty());
}

TEST(base, log_lines_are_whole_and_bounded) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  const UniqueFd saved(dup(STDERR_FILENO));
  dup2(in.get(), STDERR_FILENO);
  SetLogName("test");
  Log(Level::kDebug, "not shown");
  Log(Level::kError, "%d", 42);
  Log(Level::kError, "%s", std::string(5000, 'x').c_str());
  dup2(saved.get(), STDERR_FILENO);
  char text[4096] = {};
  const ssize_t size = read(out.get(), text, sizeof text);
  const std::string got(text, static_cast<size_t>(size));
  CHECK(got.starts_with("rgpu test: 42\nrgpu test: xxx"));
  CHECK(got.ends_with("x\n") && got.size() < 1100);
}

}  // namespace
}  // namespace rgpu::base
