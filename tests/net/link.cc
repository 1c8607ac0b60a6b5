// An emulated network link: two TUN devices in two network namespaces, and between them a rate, a
// delay and a bounded queue for each direction.  The kernel's netem does the same but is not
// everywhere, and a token bucket alone has no delay.
//
//   link NAMESPACE_A NAME_A NAMESPACE_B NAME_B DELAY_NS BITS_PER_SECOND QUEUE_BYTES SPIN_NS
//
// DELAY_NS is one way.  SPIN_NS: how long it looks for packets after the last one before it sleeps;
// only for who has a processor of its own.  Prints "ready" when both devices are there.  Obeys
// lines on its input: "cut", "mend", "set DELAY_NS BITS_PER_SECOND", "lose PPM", "count"; each is
// answered by a line.  It ends with its input, so never outlives who started it, and its devices
// end with it.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>

#include "tests/net/packet.h"

namespace rgpu::net {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kNever = ~uint64_t{0};
constexpr size_t kMostPacket = kVnetBytes + 65536;
// Read at once, so that what is due is not late for what comes.
constexpr int kReads = 16;

struct Settings {
  std::atomic<uint64_t> delay_ns{0};
  std::atomic<uint64_t> bits_per_second{0};  // 0: as fast as can be
  std::atomic<bool> cut{false};
  std::atomic<uint64_t> loss_ppm{0};  // at random, of what the wire carries
  uint64_t queue_bytes = 0;
};

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "link: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

// Packets in flight, in order, in one circular piece of memory.
class Flight {
 public:
  explicit Flight(size_t bytes) : bytes_(bytes), data_(new uint8_t[bytes]) {}

  bool empty() const { return head_ == tail_; }
  uint64_t due() const { return Front()->due_ns; }
  const uint8_t* packet() const { return data_.get() + head_ + sizeof(Record); }
  size_t packet_bytes() const { return Front()->bytes; }

  // Where the next packet of at most kMostPacket bytes can be read to; nullptr: there is no room.
  uint8_t* Room() {
    if (empty()) head_ = tail_ = 0;
    if (head_ <= tail_ && bytes_ - tail_ < kNeeded) {
      if (head_ < kNeeded) return nullptr;
      if (bytes_ - tail_ >= sizeof(Record)) *At(tail_) = {0, kWrap};
      tail_ = 0;
    } else if (head_ > tail_ && head_ - tail_ <= kNeeded) {
      return nullptr;
    }
    return data_.get() + tail_ + sizeof(Record);
  }

  void Push(uint64_t due_ns, size_t bytes) {
    *At(tail_) = {due_ns, bytes};
    tail_ += Whole(bytes);
  }

  void Pop() {
    head_ += Whole(Front()->bytes);
    if (bytes_ - head_ < sizeof(Record) || (head_ != tail_ && Front()->bytes == kWrap)) head_ = 0;
  }

 private:
  struct Record {
    uint64_t due_ns;
    uint64_t bytes;
  };
  static constexpr uint64_t kWrap = ~uint64_t{0};
  static constexpr size_t kNeeded = 2 * sizeof(Record) + kMostPacket + 16;

  static size_t Whole(size_t bytes) { return sizeof(Record) + ((bytes + 15) & ~size_t{15}); }
  Record* At(size_t where) { return reinterpret_cast<Record*>(data_.get() + where); }
  const Record* Front() const { return reinterpret_cast<const Record*>(data_.get() + head_); }

  size_t bytes_;
  std::unique_ptr<uint8_t[]> data_;
  size_t head_ = 0;
  size_t tail_ = 0;
};

// One direction: what is read from `in` is written to `out` when its last bit would have arrived.
class Direction {
 public:
  Direction(int in, int out, const Settings& settings, size_t flight_bytes)
      : in_(in), out_(out), settings_(settings), flight_(flight_bytes) {}

  std::atomic<uint64_t> passed{0};
  std::atomic<uint64_t> dropped{0};

  int in() const { return in_; }

  // When the next packet is due, kNever without one.
  uint64_t due() const { return flight_.empty() ? kNever : flight_.due(); }

  void Deliver() {
    while (due() <= NowNs()) {
      if (!settings_.cut) {
        // A device that is down, or whose namespace is busy, loses the packet like any network.
        const ssize_t sent = write(out_, flight_.packet(), flight_.packet_bytes());
        (sent > 0 ? passed : dropped).fetch_add(1, std::memory_order_relaxed);
      }
      flight_.Pop();
    }
  }

  // False: there was nothing.
  bool Take() {
    for (int i = 0; i < kReads; ++i) {
      uint8_t* room = flight_.Room();
      const ssize_t got = read(in_, room == nullptr ? spill_.data() : room, kMostPacket);
      if (got <= 0) return i > 0;
      const auto bytes = static_cast<size_t>(got);
      if (room == nullptr || !Admit(room, bytes)) dropped.fetch_add(1, std::memory_order_relaxed);
    }
    return true;
  }

 private:
  bool Admit(const uint8_t* packet, size_t bytes) {
    if (settings_.cut || Lost(packet, bytes)) return false;
    const uint64_t now = NowNs();
    if (free_ns_ < now) free_ns_ = now;
    const uint64_t rate = settings_.bits_per_second;
    uint64_t takes_ns = 0;
    if (rate != 0) {
      const uint64_t waiting = (free_ns_ - now) / 1000 * (rate / 1'000'000) / 8;  // bytes
      if (waiting > settings_.queue_bytes) return false;
      takes_ns = WireBytes(packet, bytes) * 8 * 1'000'000 / (rate / 1000);
    }
    free_ns_ += takes_ns;
    flight_.Push(free_ns_ + settings_.delay_ns, bytes);
    return true;
  }

  // A large packet is lost as often as those that it stands for, and whole: a burst.
  bool Lost(const uint8_t* packet, size_t bytes) {
    const uint64_t loss_ppm = settings_.loss_ppm;
    if (loss_ppm == 0) return false;
    dice_ ^= dice_ << 13;
    dice_ ^= dice_ >> 7;
    dice_ ^= dice_ << 17;
    return dice_ % 1'000'000 < loss_ppm * (WireBytes(packet, bytes) / kFrameBytes + 1);
  }

  static constexpr size_t kFrameBytes = 1538;

  int in_;
  int out_;
  const Settings& settings_;
  uint64_t dice_ = 88'172'645'463'325'252;  // the same in every run
  Flight flight_;
  std::array<uint8_t, kMostPacket> spill_{};
  uint64_t free_ns_ = 0;  // when the last bit that was admitted has left
};

// Sleeps until one of the directions has something to do.
void Wait(const Direction& there, const Direction& back) {
  std::array<pollfd, 2> inputs{{{there.in(), POLLIN, 0}, {back.in(), POLLIN, 0}}};
  const uint64_t due = std::min(there.due(), back.due());
  const uint64_t now = NowNs();
  const uint64_t ns = due > now ? due - now : 0;
  const timespec left = {static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
  ppoll(inputs.data(), inputs.size(), due == kNever ? nullptr : &left, nullptr);
}

[[noreturn]] void Run(Direction* there, Direction* back, uint64_t spin_ns) {
  // A timer that may be late by the usual 50 us would be half of a short link's round trip.
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param first{1};
  sched_setscheduler(0, SCHED_RR, &first);  // busy machines would emulate longer links
  for (uint64_t last = 0;;) {
    bool busy = false;
    for (Direction* one : {there, back}) {
      one->Deliver();
      busy = one->Take() || busy;
    }
    const uint64_t now = spin_ns == 0 ? 0 : NowNs();
    if (busy) last = now;
    if (now - last >= spin_ns) Wait(*there, *back);
  }
}

// Opens a TUN device `name` in another network namespace.
int OpenTun(const char* network, const char* name) {
  const int space = open(network, O_RDONLY | O_CLOEXEC);
  if (space < 0) Fail(network);
  if (setns(space, CLONE_NEWNET) != 0) Fail("entering a network namespace (needs root)");
  close(space);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) Fail("/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (ioctl(device, TUNSETIFF, &request) != 0) Fail("making a TUN device (needs root)");
  // Large packets pass whole: without that two cores do not emulate a gigabit.
  if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) Fail("offloads");
  return device;
}

void Obey(const std::string& line, Settings* settings, const Direction& there,
          const Direction& back) {
  unsigned long long delay = 0;
  unsigned long long rate = 0;
  if (line == "cut" || line == "mend") {
    settings->cut = line == "cut";
  } else if (std::sscanf(line.c_str(), "set %llu %llu", &delay, &rate) == 2) {
    settings->delay_ns = delay;
    settings->bits_per_second = rate;
  } else if (std::sscanf(line.c_str(), "lose %llu", &rate) == 1) {
    settings->loss_ppm = rate;
  } else if (line == "count") {
    std::printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(there.passed),
                static_cast<unsigned long long>(there.dropped),
                static_cast<unsigned long long>(back.passed),
                static_cast<unsigned long long>(back.dropped));
    return;
  } else {
    std::printf("no such order: %s\n", line.c_str());
    return;
  }
  std::puts("done");
}

int Main(char** words) {
  Settings settings;
  settings.delay_ns = std::strtoull(words[5], nullptr, 10);
  settings.bits_per_second = std::strtoull(words[6], nullptr, 10);
  settings.queue_bytes = std::strtoull(words[7], nullptr, 10);
  const int a = OpenTun(words[1], words[2]);
  const int b = OpenTun(words[3], words[4]);
  // What waits for the wire and what is under way; small packets need a record each.
  const uint64_t set = settings.bits_per_second;
  const uint64_t rate = set == 0 ? 10 * kSecondNs : set;
  const size_t flight =
      settings.queue_bytes + rate / 8 / 1000 * (settings.delay_ns / 1'000'000 + 4);
  Direction there(a, b, settings, 2 * flight + (8U << 20));
  Direction back(b, a, settings, 2 * flight + (8U << 20));
  const uint64_t spin_ns = std::strtoull(words[8], nullptr, 10);
  std::thread([&] { Run(&there, &back, spin_ns); }).detach();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::puts("ready");
  std::array<char, 128> line{};
  while (std::fgets(line.data(), line.size(), stdin) != nullptr) {
    std::string text(line.data());
    while (!text.empty() && text.back() == '\n') text.pop_back();
    Obey(text, &settings, there, back);
  }
  std::fflush(stdout);
  _exit(0);  // the thread never ends
}

}  // namespace
}  // namespace rgpu::net

int main(int count, char** words) {
  if (count == 9) return rgpu::net::Main(words);
  std::fputs("usage: link NS_A NAME_A NS_B NAME_B DELAY_NS BITS_PER_SECOND QUEUE_BYTES SPIN_NS\n",
             stderr);
  return 2;
}
