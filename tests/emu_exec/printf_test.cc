#include <cstring>

#include "rgpu_emu/device/exec/printf_fifo.h"
#include "tests/emu_exec/device.h"
#include "tests/native/testing.h"

namespace rgpu::emu::testing {
namespace {

class Printer {
 public:
  Printer()
      : kernel_(LoadKernel("printf")),
        memory_(device_.New<char>(8192)),
        count_(device_.New<int32_t>(1)) {}

  // Packs arguments as device code does: each aligned to its size.
  template <typename... P>
  std::string Print(const char* format, const P&... values) {
    std::strcpy(memory_, format);
    size_t at = 4096;
    (Pack(&at, values), ...);
    CHECK_EQ(static_cast<int>(device_.Run(*kernel_, 1, 1, memory_, memory_ + 4096, count_)), 0);
    return device_.printed();
  }
  const char* Text(const char* text) {
    char* at = memory_ + 6000;
    std::strcpy(at, text);
    return at;
  }
  int count() const { return *count_; }
  TestDevice& device() { return device_; }
  const Kernel& kernel() const { return *kernel_; }
  char* memory() { return memory_; }

 private:
  template <typename T>
  void Pack(size_t* at, const T& value) {
    *at = (*at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    std::memcpy(memory_ + *at, &value, sizeof(T));
    *at += sizeof(T);
  }

  TestDevice device_;
  std::shared_ptr<const Kernel> kernel_;
  char* memory_;
  int32_t* count_;
};

TEST(printf, conversions) {
  Printer p;
  CHECK_EQ(p.Print("plain 100%%\n"), "plain 100%\n");
  CHECK_EQ(p.count(), 0);
  CHECK_EQ(p.Print("%d %5d|%-5d|%05d|%+d", -1, 42, 42, 42, 42), "-1    42|42   |00042|+42");
  CHECK_EQ(p.count(), 5);
  CHECK_EQ(p.Print("%u %x %#X %o", 0xffffffffu, 255u, 255u, 8u), "4294967295 ff 0XFF 10");
  CHECK_EQ(p.Print("%lld %lu %hd %hhu", int64_t{-5000000000}, ~uint64_t{0}, 70000, 511),
           "-5000000000 18446744073709551615 4464 255");
  CHECK_EQ(p.Print("%d then %f", 1, 2.5), "1 then 2.500000");
  CHECK_EQ(p.Print("%.3f %10.2e %g %a", 3.14159, 12345.678, 0.5, 1.0),
           "3.142   1.23e+04 0.5 0x1p+0");
  CHECK_EQ(p.Print("%c%c %*d %.*f", int{'o'}, int{'k'}, 4, 7, 1, 2.25), "ok    7 2.2");
  CHECK_EQ(p.Print("[%s] [%8s] [%-4s] [%.2s]", p.Text("abc"), p.Text("abc"), p.Text("abc"),
                   p.Text("abc")),
           "[abc] [     abc] [abc ] [ab]");
  CHECK_EQ(p.Print("%s", uint64_t{0}), "(null)");
  CHECK_EQ(p.Print("%p", uint64_t{0x20001000}), "0x20001000");
}

TEST(printf, what_it_does_not_know_is_printed) {
  Printer p;
  CHECK_EQ(p.Print("%n %k %", 1), "%n %k %");
  CHECK_EQ(p.Print("%999999d|", 1).size(), 1025u);
}

TEST(printf, bad_addresses_end_the_kernel) {
  Printer p;
  std::strcpy(p.memory(), "%s");
  const auto run = [&](uint64_t format, uint64_t arguments) {
    return static_cast<int>(p.device().Run(p.kernel(), 1, 1, format, arguments, p.memory() + 4000));
  };
  const auto text = reinterpret_cast<uint64_t>(p.memory());
  const uint64_t unmapped = p.device().band_base() + TestDevice::kBandBytes - 4096;
  CHECK_EQ(run(text, 16), static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS));
  CHECK_EQ(run(unmapped, text), static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS));
  std::memcpy(p.memory() + 4096, &unmapped, 8);
  CHECK_EQ(run(text, text + 4096), static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS));
  CHECK_EQ(p.Print("still %d", 1), "still 1");
}

struct Sink {
  void FlushOf(PrintfFifo& fifo) {
    fifo.Flush([this](std::string_view text) { printed += text; });
  }
  std::string printed;
};

constexpr uint64_t kRecord = sizeof(std::string);  // beside its bytes

TEST(printf, a_full_buffer_keeps_the_newest) {
  Sink sink;
  PrintfFifo fifo(2 * (kRecord + 5));
  fifo.Push("aaaa");
  fifo.Push("bbbb");
  fifo.Push("cccc");
  fifo.Push(std::string(kRecord + 11, 'x'));
  sink.FlushOf(fifo);
  CHECK_EQ(sink.printed, "bbbbcccc");
  sink.FlushOf(fifo);
  CHECK_EQ(sink.printed, "bbbbcccc");
}

TEST(printf, records_take_room_however_short_they_are) {
  Sink sink;
  PrintfFifo fifo(3 * (kRecord + 1));
  fifo.Push("a");
  for (int i = 0; i < 1000; ++i) fifo.Push("");
  for (const char* text : {"b", "c", "d"}) fifo.Push(text);
  sink.FlushOf(fifo);
  CHECK_EQ(sink.printed, "bcd");
}

}  // namespace
}  // namespace rgpu::emu::testing
