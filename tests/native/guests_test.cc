#include "rgpu_server/gateway/guests.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::gateway {
namespace {

// A guest that has come: `ours` is the other end of its socket.
struct Guest {
  uint64_t number = 0;
  base::UniqueFd ours;
  unsigned int sent_away = 0;

  bool IsThere() const {
    pollfd look{ours.get(), POLLIN, 0};
    return poll(&look, 1, 0) == 0;
  }
};

Guest Come(Guests& guests, const std::string& network) {
  std::array<int, 2> ends{};
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  Guest guest{0, base::UniqueFd(ends[1])};
  const auto theirs = std::make_shared<base::UniqueFd>(ends[0]);
  const auto send_away = [theirs] { shutdown(theirs->get(), SHUT_RDWR); };
  guest.number = guests.Enter(send_away, network, &guest.sent_away);
  return guest;
}

bool Introduce(Guests& guests, const Guest& guest, transport::Connection* connection) {
  return guests.Introduce(guest.number, [connection] { connection->Shutdown(); });
}

TEST(guests, one_network_shakes_no_hands_in_the_place_of_others) {
  Guests guests({4, 100});
  const Guest honest = Come(guests, "a");
  std::vector<Guest> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(Come(guests, "b"));
  CHECK(honest.IsThere());
  CHECK(!flood[46].IsThere() && flood[47].IsThere() && flood[49].IsThere());
  const Guest late = Come(guests, "c");
  CHECK_EQ(late.sent_away, 1U);
  CHECK(honest.IsThere() && late.IsThere() && !flood[47].IsThere());
}

TEST(guests, of_equal_crowds_the_longest_there_goes) {
  Guests guests({3, 100});
  const Guest first = Come(guests, "a");
  const Guest second = Come(guests, "b");
  const Guest third = Come(guests, "c");
  CHECK(Come(guests, "d").sent_away == 1 && !first.IsThere() && second.IsThere());
  // With the newcomer theirs is the largest crowd.
  CHECK(Come(guests, "c").sent_away == 1 && second.IsThere() && !third.IsThere());
}

TEST(guests, who_makes_room_is_found_among_very_many) {
  Crowds crowds;
  uint64_t number = 0;
  for (int network = 0; network < 2000; ++network) {
    for (int i = 0; i < 3; ++i) crowds.Come(++number, std::to_string(network));
  }
  CHECK_EQ(crowds.OfLargest("elsewhere"), 1U);
  CHECK_EQ(crowds.OfLargest("1000"), 3001U);
  crowds.Come(++number, "500");
  CHECK_EQ(crowds.OfLargest("1000"), 1501U);
  crowds.Go(1501, "500");
  crowds.Go(1501, "500");
  CHECK_EQ(crowds.size(), number - 1);
  CHECK_EQ(crowds.OfLargest("500"), 1502U);
  for (uint64_t guest = 1; guest <= number; ++guest) {
    crowds.Go(guest, guest == number ? "500" : std::to_string((guest - 1) / 3));
  }
  CHECK_EQ(crowds.OfLargest("500"), 0U);
}

TEST(guests, who_has_been_sent_away_is_not_introduced) {
  Guests guests({1, 100});
  testing::Pair pair = testing::MakePair("unix");
  const Guest first = Come(guests, "a");
  const Guest second = Come(guests, "a");
  CHECK(!Introduce(guests, first, pair.a.get()));
  guests.Leave(first.number);
  CHECK(Introduce(guests, second, pair.a.get()));
  CHECK(Come(guests, "a").sent_away == 0);
}

TEST(guests, who_is_answered_stays_and_who_is_not_makes_room) {
  Guests guests({100, 3});
  std::vector<testing::Pair> pairs;
  const auto introduce = [&](const Guest& guest) {
    pairs.push_back(testing::MakePair("unix"));
    CHECK(Introduce(guests, guest, pairs.back().a.get()));
  };
  const auto is_there = [&](size_t i) { return pairs[i].b->Wait(transport::kHangup, 0) == 0; };
  const Guest first = Come(guests, "b");
  introduce(first);
  guests.SetKnown(first.number, true);
  introduce(Come(guests, "b"));
  const Guest third = Come(guests, "b");
  introduce(third);
  const Guest fourth = Come(guests, "a");
  CHECK_EQ(fourth.sent_away, 1U);
  CHECK(is_there(0) && !is_there(1) && is_there(2));
  // All are known: nobody makes room, until somebody has had his last answer.
  guests.SetKnown(third.number, true);
  introduce(fourth);
  guests.SetKnown(fourth.number, true);
  CHECK_EQ(Come(guests, "c").number, 0U);
  guests.SetKnown(first.number, false);
  CHECK_EQ(Come(guests, "c").sent_away, 1U);
  CHECK(!is_there(0) && is_there(2) && is_there(3));
  // Who has left is not remembered.
  guests.Leave(first.number);
  guests.SetKnown(first.number, false);
}

}  // namespace
}  // namespace rgpu::gateway
