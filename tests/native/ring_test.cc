#include "rgpu_common/native/transport/shm/ring.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "rgpu_common/native/base/cpus.h"
#include "rgpu_common/native/base/probe.h"
#include "rgpu_common/native/transport/shm/segment.h"
#include "rgpu_common/native/transport/shm/spin.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

constexpr size_t kBytes = 4096;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  uint64_t Below(uint64_t limit) { return Next() % limit; }

 private:
  uint64_t state_;
};

struct BellCounter final : Doorbell {
  void Ring() override { ++rung; }
  int rung = 0;
};

// A ring in memory of its own, so that a sanitizer sees what is read or written outside of it.
struct OneRing {
  OneRing() : control(std::make_unique<RingControl>()), data(new uint8_t[kBytes]) {}
  std::unique_ptr<RingControl> control;
  std::unique_ptr<uint8_t[]> data;
  BellCounter bell;
  RingWriter writer{control.get(), data.get(), kBytes, &bell};
  RingReader reader{control.get(), data.get(), kBytes, &bell};
};

// The ring against a queue, with sizes from nothing to more than the ring, in up to three parts.
void AgainstAQueue(uint64_t seed) {
  Random random(seed);
  OneRing ring;
  std::deque<uint8_t> model;
  for (int step = 0; step < 4000; ++step) {
    if (random.Below(2) == 0) {
      std::vector<std::vector<uint8_t>> bytes(1 + random.Below(3));
      std::vector<iovec> parts;
      for (auto& part : bytes) {
        part.resize(random.Below(4) == 0 ? random.Below(2 * kBytes) : random.Below(200));
        for (uint8_t& byte : part) byte = static_cast<uint8_t>(random.Next());
        parts.push_back({part.data(), part.size()});
      }
      const RingResult result = ring.writer.Write(parts.data(), static_cast<int>(parts.size()));
      size_t all = 0;
      for (const auto& part : bytes) all += part.size();
      CHECK_EQ(result.bytes, std::min(all, kBytes - model.size()));
      CHECK((result.state == RingState::kDone) == (result.bytes > 0));
      size_t left = result.bytes;
      for (const auto& part : bytes) {
        const size_t count = std::min(left, part.size());
        model.insert(model.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(count));
        left -= count;
      }
    } else {
      std::vector<uint8_t> got(1 + random.Below(random.Below(3) == 0 ? 2 * kBytes : 300));
      const RingResult result = ring.reader.Read(got.data(), got.size());
      CHECK_EQ(result.bytes, std::min(got.size(), model.size()));
      for (size_t i = 0; i < result.bytes; ++i, model.pop_front()) CHECK_EQ(got[i], model.front());
    }
    CHECK_EQ(ring.reader.HasBytes(), !model.empty());
    CHECK_EQ(ring.writer.HasRoom(kBytes / 4), kBytes - model.size() >= kBytes / 4);
  }
  CHECK_EQ(ring.bell.rung, 0);  // nobody said that it sleeps
}

TEST(ring, agrees_with_a_queue) {
  for (uint64_t seed = 1; seed <= 20; ++seed) AgainstAQueue(seed);
}

TEST(ring, rings_once_for_who_says_that_it_sleeps) {
  OneRing ring;
  std::vector<uint8_t> bytes(kBytes);
  const iovec all{bytes.data(), bytes.size()};
  const iovec one{bytes.data(), 1};
  ring.reader.SaySleeping();
  CHECK_EQ(ring.writer.Write(&one, 1).bytes, 1U);
  CHECK_EQ(ring.writer.Write(&one, 1).bytes, 1U);
  CHECK_EQ(ring.bell.rung, 1);
  CHECK_EQ(ring.writer.Write(&all, 1).bytes, kBytes - 2);
  ring.writer.SaySleeping();
  // A little room is not worth a wake-up.
  CHECK_EQ(ring.reader.Read(bytes.data(), kBytes / 4 - 1).bytes, kBytes / 4 - 1);
  CHECK_EQ(ring.bell.rung, 1);
  CHECK(!ring.writer.HasRoom(kBytes / 4));
  CHECK_EQ(ring.reader.Read(bytes.data(), 1).bytes, 1U);
  CHECK_EQ(ring.bell.rung, 2);
  CHECK(ring.writer.HasRoom(kBytes / 4));
}

// A ring whose first `words` control words lie at the end of a page, and the others in the next
// one. `Stop` makes the first page read-only, so the next store of a position there faults. The
// handler lets the other end act, and then the store is done: the other end has acted between every
// earlier step of the storing end and that store.
class StoppedRing {
 public:
  explicit StoppedRing(size_t words) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* at = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    pages_ = static_cast<uint8_t*>(at);
    control_ = new (pages_ + page_ - words * alignof(RingControl)) RingControl{};
    writer.emplace(control_, data_.data(), kBytes, &bell);
    reader.emplace(control_, data_.data(), kBytes, &bell);
    stopped_ = this;
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = &StoppedRing::OnFault;
    CHECK(sigaction(SIGSEGV, &action, &before_) == 0);
  }
  ~StoppedRing() {
    sigaction(SIGSEGV, &before_, nullptr);
    stopped_ = nullptr;
    munmap(pages_, 2 * page_);
  }
  StoppedRing(const StoppedRing&) = delete;
  StoppedRing& operator=(const StoppedRing&) = delete;

  void Stop(std::function<void()> meanwhile) {
    meanwhile_ = std::move(meanwhile);
    CHECK(mprotect(pages_, page_, PROT_READ) == 0);
  }

  BellCounter bell;
  std::optional<RingWriter> writer;
  std::optional<RingReader> reader;

 private:
  static void OnFault(int, siginfo_t* fault, void*) {
    const auto* at = static_cast<const uint8_t*>(fault->si_addr);
    const bool ours = at >= stopped_->pages_ && at < stopped_->pages_ + stopped_->page_;
    // Another fault comes again, and ends the process.
    if (!ours) return static_cast<void>(sigaction(SIGSEGV, &stopped_->before_, nullptr));
    mprotect(stopped_->pages_, stopped_->page_, PROT_READ | PROT_WRITE);
    stopped_->meanwhile_();
  }

  static inline StoppedRing* stopped_ = nullptr;
  const size_t page_;
  uint8_t* pages_ = nullptr;
  RingControl* control_ = nullptr;
  std::vector<uint8_t> data_ = std::vector<uint8_t>(kBytes);
  struct sigaction before_{};
  std::function<void()> meanwhile_;
};

TEST(ring, wakes_a_reader_that_falls_asleep_just_before_the_position_is_stored) {
  StoppedRing ring(1);  // the writer's position
  bool sleeps = false;
  ring.Stop([&] {
    ring.reader->SaySleeping();
    sleeps = !ring.reader->HasBytes();
  });
  uint8_t byte = 1;
  const iovec part{&byte, 1};
  CHECK_EQ(ring.writer->Write(&part, 1).bytes, 1U);
  CHECK(sleeps);
  CHECK_EQ(ring.bell.rung, 1);
}

TEST(ring, wakes_a_writer_that_falls_asleep_just_before_the_position_is_stored) {
  StoppedRing ring(2);  // the reader's position, too
  std::vector<uint8_t> bytes(kBytes);
  const iovec all{bytes.data(), bytes.size()};
  CHECK_EQ(ring.writer->Write(&all, 1).bytes, kBytes);
  bool sleeps = false;
  ring.Stop([&] {
    ring.writer->SaySleeping();
    sleeps = !ring.writer->HasRoom(RoomToGoOn(kBytes));
  });
  CHECK_EQ(ring.reader->Read(bytes.data(), kBytes).bytes, kBytes);
  CHECK(sleeps);
  CHECK_EQ(ring.bell.rung, 1);
}

// Whatever a peer writes into the control words, nothing outside the ring is touched, nothing
// blocks, and no more is moved than the ring holds.
TEST(ring, survives_hostile_words) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    OneRing ring;
    std::vector<uint8_t> bytes(2 * kBytes);
    for (int step = 0; step < 50; ++step) {
      const uint64_t near = ring.control->tail.load() + random.Below(4 * kBytes) - 2 * kBytes;
      const uint64_t value = random.Below(2) == 0 ? random.Next() : near;
      std::atomic<uint64_t>& word = random.Below(2) == 0 ? ring.control->head : ring.control->tail;
      if (random.Below(3) == 0) word = value;
      if (random.Below(5) == 0) ring.control->reader_sleeps = static_cast<uint32_t>(random.Next());
      if (random.Below(5) == 0) ring.control->writer_sleeps = static_cast<uint32_t>(random.Next());
      const iovec part{bytes.data(), random.Below(bytes.size())};
      CHECK(ring.writer.Write(&part, 1).bytes <= kBytes);
      CHECK(ring.reader.Read(bytes.data(), 1 + random.Below(bytes.size() - 1)).bytes <= kBytes);
      static_cast<void>(ring.writer.HasRoom(kBytes / 4));
      static_cast<void>(ring.reader.HasBytes());
    }
  }
}

TEST(ring, says_that_a_position_makes_no_sense) {
  OneRing ring;
  uint8_t bytes[8] = {};
  const iovec part{bytes, sizeof bytes};
  ring.control->head = 1;  // more than was written
  CHECK(ring.writer.Write(&part, 1).state == RingState::kBroken);
  CHECK(ring.writer.HasRoom(1));  // who waits shall look
  OneRing other;
  other.control->tail = kBytes + 1;  // more than the ring holds
  CHECK(other.reader.Read(bytes, sizeof bytes).state == RingState::kBroken);
  CHECK(other.reader.HasBytes());
}

TEST(ring, takes_no_memory_that_could_go_away) {
  Segment made;
  base::UniqueFd fd;
  int error = 0;
  CHECK(Segment::Make(kBytes, &made, &fd, &error));
  CHECK(ftruncate(fd.get(), 4096) != 0);  // sealed
  Segment mapped;
  std::string why;
  CHECK(Segment::Map(fd, &mapped, &why));
  CHECK_EQ(mapped.ring_bytes(), kBytes);
  made.control(1)->tail = 5;
  CHECK_EQ(mapped.control(1)->tail.load(), 5U);
  const auto refused = [&](off_t bytes, int seals) {
    base::UniqueFd bad(memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CHECK(ftruncate(bad.get(), bytes) == 0 && fcntl(bad.get(), F_ADD_SEALS, seals) == 0);
    Segment none;
    why.clear();
    return !Segment::Map(bad, &none, &why) && !why.empty() && !none.mapped();
  };
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  CHECK(!refused(4096 + 2 * 8192, kSealed));
  CHECK(refused(4096 + 2 * 8192, F_SEAL_GROW));
  CHECK(refused(0, kSealed));
  CHECK(refused(4096, kSealed));
  CHECK(refused(4096 + 2 * 8192 + 1, kSealed));
  CHECK(refused(4096 + 2 * 12288, kSealed));
  CHECK(refused((off_t{1} << 40) + 4096, kSealed));
  Segment none;
  CHECK(!Segment::Map(base::UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)), &none, &why));
  CHECK(!Segment::Map(base::UniqueFd(), &none, &why));
}

TEST(ring, never_looks_with_one_processor_and_learns_with_two) {
  Spin one(1);
  CHECK_EQ(one.Budget(), 0U);
  one.Found(5000);
  CHECK_EQ(one.Budget(), 0U);
  Spin two(2);
  CHECK(two.Budget() > 1000);
  for (int i = 0; i < 20; ++i) two.Slept(5'000'000, two.Budget());
  CHECK_EQ(two.Budget(), 1000U);  // long waits: not worth it
  for (int i = 0; i < 4; ++i) two.Slept(40'000, two.Budget());
  CHECK(two.Budget() > 10'000);
  two.Found(20'000);
  CHECK(two.Budget() >= 40'000);
  // It only comes when this end sleeps: both ends want the same processor.
  int looked = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t budget = two.Budget();
    looked += budget > 0 ? 1 : 0;
    two.Slept(60'000, budget);
  }
  CHECK(looked < 50);
}

TEST(ring, reads_limits_of_control_groups) {
  char folder[] = "/tmp/rgpu-cgroup-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string root(folder);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::string command =
        "mkdir -p $(dirname " + root + name + ") && echo '" + text + "' > " + root + name;
    CHECK(system(command.c_str()) == 0);
  };
  CHECK_EQ(base::CgroupMilliCpus("0::/a/b\n", root), -1L);
  write("/a/cpu.max", "150000 100000");
  write("/a/b/cpu.max", "max 100000");
  CHECK_EQ(base::CgroupMilliCpus("0::/a/b\n", root), 1500L);
  write("/a/b/cpu.max", "50000 100000");
  CHECK_EQ(base::CgroupMilliCpus("0::/a/b\n", root), 500L);
  write("/cpu/c/cpu.cfs_quota_us", "200000");
  write("/cpu/c/cpu.cfs_period_us", "100000");
  CHECK_EQ(base::CgroupMilliCpus("7:memory:/x\n3:cpu,cpuacct:/c\n", root), 2000L);
  write("/cpu/c/cpu.cfs_quota_us", "-1");
  CHECK_EQ(base::CgroupMilliCpus("3:cpu,cpuacct:/c\n", root), -1L);
  CHECK(system(("rm -r " + root).c_str()) == 0);
  CHECK(base::UsableCpus() >= 1);
}

TEST(ring, looks_at_memory_before_it_uses_it) {
  const testing::HalfMapped memory;
  const size_t page = memory.page();
  CHECK(base::CanRead(memory.data(), page) && base::CanWrite(memory.data(), page));
  CHECK(!base::CanRead(memory.data(), page + 1) && !base::CanWrite(memory.data() + page, 1));
  CHECK(base::CanRead(memory.data() + page - 1, 1));
  CHECK(mprotect(memory.data(), page, PROT_READ) == 0);
  CHECK(base::CanRead(memory.data(), page) && !base::CanWrite(memory.data(), page));
  CHECK(!base::CanRead(nullptr, 1) && base::CanRead(nullptr, 0));
  CHECK(!base::CanRead(reinterpret_cast<void*>(UINTPTR_MAX - 4), 16));
  // A file that ends before its mapping does.
  const base::UniqueFd fd(memfd_create("short", MFD_CLOEXEC));
  CHECK(ftruncate(fd.get(), 10) == 0);
  void* at = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  CHECK(base::CanWrite(at, page) && !base::CanRead(at, page + 1));
  munmap(at, 2 * page);
}

// Large memory is looked at by mapping, not by page.
TEST(ring, looks_at_much_memory_before_it_uses_it) {
  testing::NeedsGuardedCopies();
  constexpr size_t kMuch = 8U << 20;
  const base::UniqueFd fd(memfd_create("much", MFD_CLOEXEC));
  CHECK(ftruncate(fd.get(), kMuch) == 0);
  void* own = mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* file = mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  for (void* memory : {own, file}) {
    auto* at = static_cast<uint8_t*>(memory);
    CHECK(base::CanRead(at, kMuch) && base::CanWrite(at, kMuch));
    CHECK(mprotect(at + kMuch / 2, 4096, PROT_READ) == 0);
    CHECK(base::CanRead(at, kMuch) && !base::CanWrite(at, kMuch));
    CHECK(base::CanWrite(at, kMuch / 2));
    CHECK(mprotect(at + kMuch / 2, 4096, PROT_NONE) == 0);
    CHECK(!base::CanRead(at + 100, kMuch - 200) && base::CanRead(at, kMuch / 2));
    CHECK(munmap(at + kMuch / 2, 4096) == 0);
    CHECK(!base::CanRead(at, kMuch) && base::CanRead(at + kMuch / 2 + 4096, kMuch / 2 - 4096));
  }
  CHECK(ftruncate(fd.get(), kMuch / 4) == 0);
  CHECK(!base::CanRead(file, kMuch / 2) && base::CanRead(file, kMuch / 4));
  munmap(own, kMuch);
  munmap(file, kMuch);
}

}  // namespace
}  // namespace rgpu::transport
