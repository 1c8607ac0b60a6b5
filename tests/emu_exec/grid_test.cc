#include <atomic>
#include <thread>

#include "tests/emu_exec/device.h"
#include "tests/native/testing.h"

namespace rgpu::emu::testing {
namespace {

TEST(grid, loop_kernel) {
  const auto kernel = LoadKernel("saxpy");
  OnEveryDevice([&](TestDevice& device) {
    constexpr uint32_t kCount = 100'003;
    auto* x = device.New<float>(kCount);
    auto* y = device.New<float>(kCount);
    for (uint32_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 1000);
    CHECK_EQ(Code(device.Run(*kernel, (kCount + 255) / 256, 256, y, x, 3.0f, kCount)), 0);
    for (uint32_t i = 0; i < kCount; ++i) {
      CHECK_EQ(y[i], 8.0f * x[i] + static_cast<float>(i % 4 + 1) + 40.0f);
    }
  });
}

TEST(grid, barrier_kernel) {
  auto code = CodeOf("reduce");
  for (const uint32_t flags : {0u, static_cast<uint32_t>(kKernelFlagBarOnly)}) {
    code.flags = flags;
    std::shared_ptr<const Kernel> kernel;
    CHECK(Kernel::Make(code, 0, &kernel).ok());
    OnEveryDevice([&](TestDevice& device) {
      constexpr uint32_t kBlocks = 50;
      auto* out = device.New<uint32_t>(kBlocks);
      for (const uint32_t threads : {1u, 32u, 256u, 1024u}) {
        CHECK_EQ(Code(device.Run(*kernel, kBlocks, threads, out)), 0);
        for (uint32_t b = 0; b < kBlocks; ++b)
          CHECK_EQ(out[b], threads * (threads - 1) / 2 + threads * b);
      }
    });
  }
}

TEST(grid, warp_kernel) {
  const auto kernel = LoadKernel("shuffle");
  OnEveryDevice([&](TestDevice& device) {
    auto* out = device.New<uint32_t>(1024);
    CHECK_EQ(Code(device.Run(*kernel, 1, 128, out)), 0);
    for (uint32_t i = 0; i < 128; ++i) CHECK_EQ(out[i], 32 * (i / 32 * 32) + 528);
  });
}

TEST(grid, divergent_warp) {
  const auto kernel = LoadKernel("diverge");
  OnEveryDevice([&](TestDevice& device) {
    auto* out = device.New<uint32_t>(4 * 64);
    CHECK_EQ(Code(device.Run(*kernel, 1, 64, out)), 0);
    for (uint32_t i = 0; i < 64; i += 2) {
      const uint32_t lane = i % 32;
      CHECK_EQ(out[i * 4], 0x55u);
      CHECK_EQ(out[i * 4 + 1], lane < 16 ? 0x5555u : 0x55550000u);
      CHECK_EQ(out[i * 4 + 2], 0x55555555u);
      CHECK_EQ(out[i * 4 + 3], 0x55u << (lane / 8 * 8));
    }
  });
}

TEST(grid, a_warp_that_is_not_full) {
  const auto kernel = LoadKernel("diverge");
  TestDevice device;
  auto* out = device.New<uint32_t>(4 * 64);
  CHECK_EQ(Code(device.Run(*kernel, 1, 35, out)), 0);
  CHECK_EQ(out[32 * 4], 5u);
  CHECK_EQ(out[34 * 4 + 2], 5u);
}

TEST(grid, named_barriers) {
  const auto kernel = LoadKernel("barriers");
  OnEveryDevice([&](TestDevice& device) {
    auto* out = device.New<uint32_t>(256);
    CHECK_EQ(Code(device.Run(*kernel, 1, 256, out)), 0);
    for (uint32_t i = 0; i < 128; ++i) CHECK_EQ(out[i], 128u);
    for (uint32_t i = 128; i < 256; ++i) CHECK_EQ(out[i], i - 128);
  });
}

TEST(grid, a_spinning_thread_sees_the_others) {
  const auto kernel = LoadKernel("yield");
  OnEveryDevice([&](TestDevice& device) {
    auto* out = device.New<uint32_t>(1);
    CHECK_EQ(Code(device.Run(*kernel, 1, 96, out)), 0);
    CHECK(*out >= 2);
  });
}

TEST(grid, deadlocks_end) {
  const auto kernel = LoadKernel("stuck");
  OnEveryDevice([&](TestDevice& device) {
    CHECK_EQ(Code(device.Run(*kernel, 2, 64, uint64_t{0})), Code(CUDA_ERROR_LAUNCH_TIMEOUT));
    CHECK(device.fault().message.find("never arrives") != std::string::npos);
  });
}

TEST(grid, a_mask_without_its_thread_fails) {
  TestDevice device;
  CHECK_EQ(Code(device.Run(*LoadKernel("badmask"), 1, 32, uint64_t{0})),
           Code(CUDA_ERROR_LAUNCH_FAILED));
}

TEST(grid, a_long_kernel_times_out) {
  TestDevice device(2, 0.05);
  auto* words = device.New<uint32_t>(2);
  CHECK_EQ(Code(device.Run(*LoadKernel("spin"), 8, 1, words, words + 1)),
           Code(CUDA_ERROR_LAUNCH_TIMEOUT));
  CHECK(device.fault().message.find("emulated.launch_seconds") != std::string::npos);
  CHECK(device.fault().message.back() != '.');  // what shows the sentence puts it into a longer one
  CHECK_EQ(Code(device.Run(*LoadKernel("raise"), 1, 1, words)), 0);
  CHECK_EQ(Code(device.Run(*LoadKernel("spin"), 8, 1, words, words + 1)), 0);
}

// More spinning blocks than threads, in several grids, and then the grid that frees them.
TEST(grid, grids_run_side_by_side) {
  for (const unsigned threads : {1u, 2u, 3u}) {
    TestDevice device(threads);
    const auto spin = LoadKernel("spin");
    const auto raise = LoadKernel("raise");
    auto* words = device.New<uint32_t>(2);
    std::atomic<int> failures{0};
    std::vector<std::thread> streams;
    for (int i = 0; i < 3; ++i) {
      streams.emplace_back(
          [&] { failures += Code(device.Run(*spin, 16, 4, words, words + 1)) == 0 ? 0 : 1; });
    }
    while (__atomic_load_n(words + 1, __ATOMIC_ACQUIRE) < 3) std::this_thread::yield();
    CHECK_EQ(Code(device.Run(*raise, 1, 1, words)), 0);
    for (std::thread& stream : streams) stream.join();
    CHECK_EQ(failures.load(), 0);
    CHECK_EQ(words[1], 48u);
  }
}

TEST(grid, cancelled_grids_end) {
  TestDevice device;
  const auto spin = LoadKernel("spin");
  auto* words = device.New<uint32_t>(2);
  std::atomic<int> result{0};
  std::thread stream([&] { result = Code(device.Run(*spin, 8, 1, words, words + 1)); });
  while (__atomic_load_n(words + 1, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
  device.runner().Cancel(words, CUDA_ERROR_UNKNOWN);  // another owner's
  device.runner().Cancel(&device, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  stream.join();
  CHECK_EQ(result.load(), Code(CUDA_ERROR_CONTEXT_IS_DESTROYED));
  device.runner().Cancel(nullptr, CUDA_ERROR_DEINITIALIZED);
  CHECK_EQ(Code(device.Run(*spin, 1, 1, words, words + 1)), Code(CUDA_ERROR_DEINITIALIZED));
}

// A block of `spin` takes one window of 64 KiB.
constexpr uint64_t kBlock = 65536;

void WaitFor(const uint32_t* word, uint32_t least) {
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < least) std::this_thread::yield();
}

TEST(grid, grids_beyond_the_memory_wait_for_others) {
  TestDevice device(1, 20, 0, 2 * kBlock);
  const auto spin = LoadKernel("spin");
  auto* words = device.New<uint32_t>(2);
  std::atomic<int> failures{0};
  std::vector<std::thread> streams;
  for (int i = 0; i < 8; ++i) {
    streams.emplace_back(
        [&] { failures += Code(device.Run(*spin, 3, 1, words, words + 1)) == 0 ? 0 : 1; });
  }
  WaitFor(words + 1, 2);
  __atomic_store_n(words, 1u, __ATOMIC_RELEASE);
  for (std::thread& stream : streams) stream.join();
  CHECK_EQ(failures.load(), 0);
  CHECK_EQ(words[1], 24u);
  CHECK(device.most_windows_out() <= 1 + 2);  // the words are a window, too
}

TEST(grid, a_pool_shares_the_memory_with_the_streams) {
  TestDevice device(4, 20, 0, 3 * kBlock);
  const auto spin = LoadKernel("spin");
  auto* words = device.New<uint32_t>(2);
  std::atomic<int> failures{0};
  std::vector<std::thread> streams;
  for (int i = 0; i < 6; ++i) {
    streams.emplace_back(
        [&] { failures += Code(device.Run(*spin, 40, 1, words, words + 1)) == 0 ? 0 : 1; });
  }
  WaitFor(words + 1, 3);
  __atomic_store_n(words, 1u, __ATOMIC_RELEASE);
  for (std::thread& stream : streams) stream.join();
  CHECK_EQ(failures.load(), 0);
  CHECK_EQ(words[1], 240u);
  CHECK(device.most_windows_out() <= 1 + 3);
}

TEST(grid, one_that_waits_for_memory_can_be_cancelled) {
  TestDevice device(1, 20, 0, kBlock);
  const auto spin = LoadKernel("spin");
  auto* words = device.New<uint32_t>(2);
  std::atomic<int> cancelled{0};
  std::atomic<int> left{3};
  std::vector<std::thread> streams;
  for (int i = 0; i < 3; ++i) {
    streams.emplace_back([&] {
      const CUresult result = device.Run(*spin, 1, 1, words, words + 1);
      cancelled += Code(result) == Code(CUDA_ERROR_CONTEXT_IS_DESTROYED) ? 1 : 0;
      --left;
    });
  }
  WaitFor(words + 1, 1);
  while (left.load() != 0) device.runner().Cancel(&device, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  for (std::thread& stream : streams) stream.join();
  CHECK_EQ(cancelled.load(), 3);
  __atomic_store_n(words, 1u, __ATOMIC_RELEASE);
  CHECK_EQ(Code(device.Run(*spin, 1, 1, words, words + 1)), 0);
}

TEST(grid, the_time_of_waiting_for_memory_is_not_running_time) {
  TestDevice device(1, 0.2, 0, kBlock);
  const auto spin = LoadKernel("spin");
  const auto raise = LoadKernel("raise");
  auto* words = device.New<uint32_t>(3);
  std::atomic<int> first{0};
  std::thread stream([&] { first = Code(device.Run(*spin, 1, 1, words, words + 1)); });
  WaitFor(words + 1, 1);
  CHECK_EQ(Code(device.Run(*raise, 1, 1, words + 2)), 0);
  stream.join();
  CHECK_EQ(first.load(), Code(CUDA_ERROR_LAUNCH_TIMEOUT));
}

TEST(grid, memory_that_is_larger_than_all_of_it_is_refused) {
  TestDevice device(2, 20, 0, kBlock);
  const auto spin = LoadKernel("spin");
  CHECK(device.runner().Fits(*spin, 1, kBlock, 1));
  CHECK(!device.runner().Fits(*spin, 1, kBlock + 1, 1));
  CHECK(!device.runner().Fits(*spin, 1, kBlock, 2));
  auto* words = device.New<uint32_t>(2);
  device.dynamic_shared = kBlock + 1;
  CHECK_EQ(Code(device.Run(*spin, 1, 1, words, words + 1)), Code(CUDA_ERROR_OUT_OF_MEMORY));
}

TEST(grid, stop_all_returns_when_nothing_runs) {
  TestDevice device(2);
  const auto spin = LoadKernel("spin");
  auto* words = device.New<uint32_t>(2);
  std::atomic<int> ended{0};
  std::vector<std::thread> streams;
  for (int i = 0; i < 3; ++i) {
    streams.emplace_back([&] {
      const CUresult result = device.Run(*spin, 4, 1, words, words + 1);
      ended += Code(result) == Code(CUDA_ERROR_ILLEGAL_ADDRESS) ? 1 : 0;
    });
  }
  WaitFor(words + 1, 3);
  device.runner().StopAll(nullptr, CUDA_ERROR_ILLEGAL_ADDRESS);
  const uint32_t arrived = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  for (std::thread& stream : streams) stream.join();
  CHECK_EQ(ended.load(), 3);
  CHECK_EQ(words[1], arrived);
  CHECK_EQ(Code(device.Run(*spin, 1, 1, words, words + 1)), Code(CUDA_ERROR_ILLEGAL_ADDRESS));
}

TEST(grid, without_memory_it_says_so) {
  TestDevice device;
  auto* out = device.New<uint32_t>(64);
  device.room = 0;
  CHECK_EQ(Code(device.Run(*LoadKernel("reduce"), 8, 32, out)), Code(CUDA_ERROR_OUT_OF_MEMORY));
  device.room = TestDevice::kBandBytes;
  CHECK_EQ(Code(device.Run(*LoadKernel("reduce"), 8, 32, out)), 0);
}

}  // namespace
}  // namespace rgpu::emu::testing
