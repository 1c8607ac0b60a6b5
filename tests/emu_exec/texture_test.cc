// The table in which kernels find texture objects.
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "rgpu_emu/device/exec/texture.h"
#include "tests/native/testing.h"

namespace rgpu::emu {
namespace {

uint64_t Publish(uint64_t base) {
  auto state = std::make_unique<TextureState>();
  state->base = base;
  return PublishTexture(std::move(state));
}

TEST(textures, an_object_is_found_until_it_is_withdrawn) {
  const uint64_t one = Publish(1);
  const uint64_t two = Publish(2);
  CHECK(one != 0 && two != 0 && one != two);
  CHECK_EQ(FindTexture(one)->base, 1U);
  CHECK_EQ(FindTexture(two)->base, 2U);
  const auto state = WithdrawTexture(one);
  CHECK_EQ(state->base, 1U);
  CHECK(FindTexture(one) == nullptr);
  CHECK(WithdrawTexture(one) == nullptr);
  const uint64_t three = Publish(3);  // in the slot of `one`
  CHECK(three != one);
  CHECK(FindTexture(one) == nullptr);
  CHECK(WithdrawTexture(two) != nullptr);
  CHECK(WithdrawTexture(three) != nullptr);
}

TEST(textures, any_number_may_be_asked_for) {
  const uint64_t object = Publish(1);
  for (unsigned bit = 0; bit < 64; ++bit) {
    CHECK(FindTexture(object ^ uint64_t{1} << bit) == nullptr);
    CHECK(FindTexture(uint64_t{1} << bit) == nullptr);
  }
  CHECK(FindTexture(0) == nullptr);
  CHECK(FindTexture(UINT64_MAX) == nullptr);
  CHECK(WithdrawTexture(object) != nullptr);
}

TEST(textures, a_value_is_given_once) {
  std::set<uint64_t> seen;
  for (int turn = 0; turn < 5000; ++turn) {
    const uint64_t object = Publish(1);
    CHECK(seen.insert(object).second);
    CHECK(WithdrawTexture(object) != nullptr);
  }
}

// A state that is found is the state of the object that was asked for.
TEST(textures, threads_find_while_others_publish_and_withdraw) {
  std::vector<std::atomic<uint64_t>> objects(64);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::unique_ptr<TextureState>> kept;  // until all finders have ended
  std::vector<std::thread> finders;
  for (int i = 0; i < 3; ++i) {
    finders.emplace_back([&] {
      while (!stop) {
        for (const auto& place : objects) {
          const uint64_t object = place.load();
          const TextureState* state = FindTexture(object);
          if (state != nullptr && state->object != object) ++wrong;
        }
      }
    });
  }
  for (int turn = 0; turn < 20000; ++turn) {
    auto& place = objects[static_cast<size_t>(turn) % objects.size()];
    const uint64_t before = place.exchange(Publish(1));
    if (before != 0) kept.push_back(WithdrawTexture(before));
  }
  stop = true;
  for (std::thread& finder : finders) finder.join();
  CHECK_EQ(wrong.load(), 0);
  for (const auto& place : objects) CHECK(WithdrawTexture(place.load()) != nullptr);
}

}  // namespace
}  // namespace rgpu::emu
