// A tiny device for the tests: an arena, kernels from object files, captured printf output.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_emu/device/exec/exec.h"

namespace rgpu::emu::testing {

// The object file of kernels.cc compiled with -DKERNEL_<name>.
std::vector<uint8_t> ReadObject(const std::string& name);
wire::compiler::Lowered CodeOf(const std::string& name);
std::shared_ptr<const Kernel> LoadKernel(const std::string& name, size_t functions = 0);

// What CHECK_EQ can print.
inline int Code(CUresult result) { return static_cast<int>(result); }

class TestDevice : public WindowProvider, public DeviceServices {
 public:
  static constexpr uint64_t kBandBytes = 64 << 20;

  explicit TestDevice(unsigned threads = 2, double timeout_seconds = 20, uint64_t hostile_seed = 0,
                      uint64_t memory_bytes = 0);
  ~TestDevice() override;

  uint64_t ReserveWindow(uint64_t bytes) override;
  void ReleaseWindow(uint64_t address, uint64_t bytes) override;
  uint64_t DeviceMalloc(uint64_t bytes) override { return ReserveWindow(bytes); }
  void DeviceFree(uint64_t) override {}
  void Print(std::string_view text) override;
  void PrintAsserts(std::string_view text) override;

  template <typename T>
  T* New(size_t count) {
    return reinterpret_cast<T*>(ReserveWindow(count * sizeof(T)));
  }
  template <typename... P>
  CUresult Run(const Kernel& kernel, uint32_t blocks, uint32_t threads, const P&... params) {
    std::vector<uint8_t> bytes;
    (Append(&bytes, params), ...);
    return RunBytes(kernel, blocks, threads, bytes);
  }
  CUresult RunBytes(const Kernel& kernel, uint32_t blocks, uint32_t threads,
                    const std::vector<uint8_t>& params);

  GridRunner& runner() { return *runner_; }
  uint64_t band_base() const { return base_; }
  std::string printed();
  std::string asserts();
  FaultInfo fault();  // of the last Run that failed
  uint64_t windows_out() const { return windows_out_; }
  uint64_t most_windows_out() const { return most_windows_out_; }
  uint32_t dynamic_shared = 4096;
  uint64_t room = kBandBytes;  // windows are refused beyond

 private:
  template <typename T>
  static void Append(std::vector<uint8_t>* bytes, const T& value) {
    bytes->resize((bytes->size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes->insert(bytes->end(), raw, raw + sizeof(T));
  }

  std::mutex mutex_;
  uint64_t base_ = 0;
  uint64_t used_ = 4096;
  uint64_t windows_out_ = 0;
  uint64_t most_windows_out_ = 0;
  std::string printed_;
  std::string asserts_;
  FaultInfo fault_;
  std::unique_ptr<GridRunner> runner_;
};

// Runs `test` with and without a pool, and in hostile timing.
template <typename F>
void OnEveryDevice(F test) {
  for (const unsigned threads : {1u, 2u, 4u}) {
    TestDevice device(threads);
    test(device);
  }
  TestDevice hostile(3, 20, 12345);
  test(hostile);
}

}  // namespace rgpu::emu::testing
