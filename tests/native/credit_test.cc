// The worker's account of memory credit, and the same account of the client against it.
#include <map>
#include <random>

#include "rgpu_client/shim/tables/memory_credit.h"
#include "rgpu_server/executor/credit_book.h"
#include "tests/native/testing.h"

namespace rgpu::exec {
namespace {

constexpr uint64_t kBase = 0x2000'0000'0000;
constexpr uint64_t kWindow = 64 << 20;
constexpr uint64_t kPage = CreditBook::kGranule;

CreditBook Book(uint64_t granted) {
  CreditBook book;
  book.Open({kBase, kWindow});
  book.Grant(granted);
  return book;
}

TEST(credit, a_client_uses_only_what_was_granted) {
  CreditBook book = Book(3 * kPage);
  CHECK_EQ(book.Cut(kBase + 100, kPage), 2 * kPage);  // two granules, because of its place
  CHECK_EQ(book.uncut(), kPage);
  CHECK_EQ(book.Cut(kBase + 8 * kPage, kPage + 1), 0U);
  CHECK_EQ(book.Cut(kBase + 8 * kPage, kPage), kPage);
  CHECK_EQ(book.Cut(kBase + 16 * kPage, 1), 0U);
  CHECK_EQ(book.uncut(), 0U);
}

TEST(credit, only_free_addresses_of_the_window_are_used) {
  CreditBook book = Book(kWindow);
  CHECK_EQ(book.Cut(kBase - kPage, kPage), 0U);
  CHECK_EQ(book.Cut(kBase - 1, 2), 0U);
  CHECK_EQ(book.Cut(kBase + kWindow, 1), 0U);
  CHECK_EQ(book.Cut(kBase + kWindow - 1, 2), 0U);
  CHECK_EQ(book.Cut(kBase, 0), 0U);
  CHECK_EQ(book.Cut(UINT64_MAX, 2), 0U);
  CHECK_EQ(book.Cut(kBase, UINT64_MAX), 0U);
  CHECK_EQ(book.Cut(kBase + 2 * kPage, 2 * kPage), 2 * kPage);
  CHECK_EQ(book.Cut(kBase, 3 * kPage), 0U);
  CHECK_EQ(book.Cut(kBase + 3 * kPage + 5, 1), 0U);
  CHECK_EQ(book.Cut(kBase + 2 * kPage - 1, 1), kPage);
  book.Drop(kBase + 2 * kPage + 100);  // any address in its first granule
  CHECK_EQ(book.Cut(kBase + 2 * kPage, kPage), kPage);
}

TEST(credit, what_is_returned_cannot_be_used_or_returned_again) {
  CreditBook book = Book(4 * kPage);
  CHECK_EQ(book.Return(kPage), kPage);
  CHECK_EQ(book.Return(kPage), 0U);
  CHECK_EQ(book.Return(0), 0U);
  CHECK_EQ(book.Return(5 * kPage), 0U);  // more than there is: nothing is taken
  CHECK_EQ(book.Return(UINT64_MAX), 0U);
  CHECK_EQ(book.uncut(), 3 * kPage);
  CHECK_EQ(book.Return(4 * kPage), 3 * kPage);
  CHECK_EQ(book.Cut(kBase, 1), 0U);
}

TEST(credit, a_free_is_said_when_all_before_it_are_done) {
  CreditBook book = Book(kPage);
  for (const uint64_t seq : {5U, 9U, 12U}) book.Freeing(seq);
  book.Freed(9);
  CHECK_EQ(book.freed(), 0U);
  book.Freed(7);  // none of them
  book.Freed(5);
  CHECK_EQ(book.freed(), 9U);
  book.Freed(12);
  CHECK_EQ(book.freed(), 12U);
}

TEST(credit, the_number_of_allocations_has_a_bound) {
  CreditBook book;
  book.Open({kBase, uint64_t{1} << 40});
  book.Grant(uint64_t{1} << 40);
  for (uint64_t i = 0; i < CreditBook::kMostBacked; ++i) {
    CHECK_EQ(book.Cut(kBase + 2 * i * kPage, 1), kPage);
  }
  CHECK_EQ(book.Cut(kBase + (uint64_t{1} << 39), 1), 0U);
}

// Both ends of a session, with messages under way in both directions. The worker must be able to
// carry out everything that the client does.
class Pair {
 public:
  explicit Pair(uint32_t seed) : random_(seed) {
    book_.Open({kBase, kWindow});
    client_.SetMost(kWindow / 8);
    CHECK(client_.Open({kBase, kWindow, kPage, CreditBook::kGap}));
  }

  void Step() {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return Allocate(1 + random_() % (random_() % 4 == 0 ? 1 << 20 : 1 << 14));
      case 3:
      case 4:
        return Free();
      case 5:
        return Carry(random_() % 8);
      case 6:
        return Complete();
      default:
        if (random_() % 16 != 0) return Tell();
        if (const auto returned = client_.GiveBack()) {
          control_.push_back(*returned);
        }
    }
  }

  // The client has lost nothing: when all is carried out, both ends say the same.
  void Settle() {
    while (!live_.empty()) Free();
    Carry(SIZE_MAX);
    while (!frees_.empty()) Complete();
    Tell();
    const uint64_t returned = client_.GiveBack().value_or(0);
    const uint64_t uncut = book_.uncut();
    CHECK_EQ(book_.Return(returned), uncut);
    CHECK(!client_.active());
  }

 private:
  struct Command {
    bool free;
    uint64_t seq;
    uint64_t base;
    uint64_t bytes;
  };

  void Allocate(uint64_t bytes) {
    if (const auto base = client_.Cut(bytes)) {
      CHECK_EQ(*base % 512, 0U);
      const auto next = live_.lower_bound(*base);
      CHECK(next == live_.end() || *base + bytes <= next->first);
      CHECK(next == live_.begin() || std::prev(next)->first + std::prev(next)->second <= *base);
      live_.emplace(*base, bytes);
      commands_.push_back({false, ++seq_, *base, bytes});
      return;
    }
    // A call: the worker has carried out all that was posted before.
    const auto ask = client_.AskFor(bytes);
    Carry(SIZE_MAX);
    book_.Return(ask.returned);
    if (ask.wish > book_.uncut()) book_.Grant((ask.wish - book_.uncut()) / kPage * kPage);
    client_.Granted(book_.granted());
  }

  void Free() {
    if (live_.empty()) return;
    auto found = live_.lower_bound(kBase + random_() % kWindow);
    if (found == live_.end()) found = live_.begin();
    const auto [base, bytes] = *found;
    live_.erase(found);
    commands_.push_back({true, ++seq_, base, bytes});
    client_.Free(base, bytes, seq_);
  }

  // The worker reads some of the commands, and what came on the control lane.
  void Carry(size_t most) {
    for (; most > 0 && !commands_.empty(); --most) {
      const Command command = commands_.front();
      commands_.pop_front();
      if (command.free) {
        book_.Freeing(command.seq);
        frees_.push_back(command);
      } else {
        CHECK(book_.Cut(command.base, command.bytes) != 0);
      }
    }
    for (; !control_.empty(); control_.pop_front()) book_.Return(control_.front());
  }

  // Frees are carried out in any order, and become credit again or not.
  void Complete() {
    if (frees_.empty()) return;
    const size_t at = random_() % frees_.size();
    const Command command = frees_[at];
    frees_.erase(frees_.begin() + static_cast<std::ptrdiff_t>(at));
    book_.Drop(command.base);
    book_.Freed(command.seq);
    if (random_() % 4 != 0) {
      const uint64_t first = command.base / kPage * kPage;
      book_.Grant((command.base + command.bytes - first + kPage - 1) / kPage * kPage);
    }
  }

  void Tell() {
    client_.Freed(book_.freed());
    client_.Granted(book_.granted());
  }

  std::mt19937 random_;
  CreditBook book_;
  shim::MemoryCredit client_;
  std::map<uint64_t, uint64_t> live_;
  std::deque<Command> commands_;
  std::deque<Command> frees_;
  std::deque<uint64_t> control_;
  uint64_t seq_ = 0;
};

TEST(credit, the_worker_can_carry_out_all_that_a_client_does) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Pair pair(seed);
    for (int step = 0; step < 2000; ++step) pair.Step();
    pair.Settle();
  }
}

}  // namespace
}  // namespace rgpu::exec
