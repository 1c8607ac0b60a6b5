// Faults of kernels.  A group of its own, because a thread sanitizer does not let handlers leave by
// siglongjmp.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "tests/emu_exec/device.h"
#include "tests/native/testing.h"

namespace rgpu::emu::testing {
namespace {

// How often `part` is in the text.
size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(faults, wild_accesses_are_reported_and_the_device_goes_on) {
  const auto store = LoadKernel("store");
  const auto reduce = LoadKernel("reduce");
  OnEveryDevice([&](TestDevice& device) {
    auto* out = device.New<uint32_t>(64);
    const uint64_t wild = device.band_base() + TestDevice::kBandBytes - 8;
    for (uint32_t round = 0; round < 20; ++round) {
      CHECK_EQ(Code(device.Run(*store, 64, 32, wild, round)), Code(CUDA_ERROR_ILLEGAL_ADDRESS));
      CHECK_EQ(device.fault().address, wild);
      CHECK_EQ(device.fault().block[0], round);
      CHECK(device.fault().message.find("nothing is allocated") != std::string::npos);
      CHECK_EQ(Code(device.Run(*reduce, 64, 64, out)), 0);
    }
    // Outside the band is a bug of the compiler, not a kernel's own doing: the code never gets
    // there.
    CHECK_EQ(Code(device.Run(*store, 1, 1, uint64_t{8}, 0u)), Code(CUDA_ERROR_LAUNCH_FAILED));
  });
}

TEST(faults, endless_recursion_ends) {
  TestDevice device;
  auto* out = device.New<uint64_t>(1);
  CHECK_EQ(Code(device.Run(*LoadKernel("recurse"), 4, 1, out)), Code(CUDA_ERROR_LAUNCH_FAILED));
}

TEST(faults, traps_and_asserts) {
  const auto kernel = LoadKernel("fail");
  TestDevice device;
  auto* text = device.New<char>(16);
  std::snprintf(text, 16, "x > 0");
  CHECK_EQ(Code(device.Run(*kernel, 1, 1, uint64_t{0})), Code(CUDA_ERROR_LAUNCH_FAILED));
  CHECK_EQ(Code(device.Run(*kernel, 1, 1, text)), Code(CUDA_ERROR_ASSERT));
  CHECK_EQ(device.asserts(),
           "x > 0:7: x > 0: block: [0,0,0], thread: [0,0,2] Assertion `x > 0` failed.\n");
  CHECK_EQ(device.printed(), "");
  CHECK_EQ(Code(device.Run(*kernel, 3, 4, text)), Code(CUDA_ERROR_ASSERT));
  CHECK_EQ(Count(device.asserts(), "Assertion `x > 0` failed.\n"), 12U);
  CHECK(device.fault().message.find("thread (") != std::string::npos);
  CHECK_EQ(Code(device.Run(*kernel, 1, 1, uint64_t{64})), Code(CUDA_ERROR_ILLEGAL_ADDRESS));
}

TEST(faults, function_pointers_are_checked) {
  const auto kernel = LoadKernel("function", 2);
  TestDevice device;
  auto* out = device.New<uint32_t>(1);
  CHECK_EQ(Code(device.Run(*kernel, 1, 1, out, kFunctionToken | 1)), 0);
  CHECK_EQ(*out, 77u);
  for (const uint64_t token : {kFunctionToken, kFunctionToken | 2, uint64_t{0}, ~uint64_t{0}}) {
    CHECK_EQ(Code(device.Run(*kernel, 1, 1, out, token)), Code(CUDA_ERROR_INVALID_PC));
  }
}

std::atomic<int> g_chained{0};
sigjmp_buf g_back;

void Foreign(int) {
  ++g_chained;
  siglongjmp(g_back, 1);
}

// A program's own handler keeps working for its own faults, installed before or after ours.
TEST(faults, other_faults_reach_other_handlers) {
  TestDevice device;
  const auto store = LoadKernel("store");
  const uint64_t wild = device.band_base() + TestDevice::kBandBytes - 8;
  struct sigaction mine{};
  struct sigaction before{};
  mine.sa_handler = Foreign;
  mine.sa_flags = SA_NODEFER;
  CHECK_EQ(Code(device.Run(*store, 4, 1, wild, 0u)), Code(CUDA_ERROR_ILLEGAL_ADDRESS));
  sigaction(SIGSEGV, &mine, &before);
  CHECK_EQ(Code(device.Run(*store, 4, 1, wild, 0u)), Code(CUDA_ERROR_ILLEGAL_ADDRESS));
  CHECK_EQ(g_chained.load(), 0);
  if (sigsetjmp(g_back, 1) == 0) *reinterpret_cast<volatile int*>(wild) = 1;
  CHECK_EQ(g_chained.load(), 1);
  CHECK_EQ(Code(device.Run(*store, 4, 1, wild, 0u)), Code(CUDA_ERROR_ILLEGAL_ADDRESS));
  sigaction(SIGSEGV, &before, nullptr);
}

// A process in which no kernel runs dies as it would without us.
TEST(faults, other_processes_die_of_their_own_faults) {
  void* closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (const bool sent : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      for (const int signal : {SIGSEGV, SIGBUS}) {
        struct sigaction plain{};
        plain.sa_handler = SIG_DFL;
        sigaction(signal, &plain, nullptr);
      }
      const struct rlimit none = {0, 0};
      setrlimit(RLIMIT_CORE, &none);
      InstallFaultHandlers();
      if (sent) kill(getpid(), SIGSEGV);
      *static_cast<volatile int*>(closed) = 1;
      _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGSEGV);
  }
  munmap(closed, 4096);
}

}  // namespace
}  // namespace rgpu::emu::testing
