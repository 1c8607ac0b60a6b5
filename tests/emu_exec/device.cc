#include "tests/emu_exec/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/native/testing.h"

namespace rgpu::emu::testing {

std::vector<uint8_t> ReadObject(const std::string& name) {
  std::ifstream file(std::string(RGPU_TEST_OBJECTS) + "/" + name + ".o", std::ios::binary);
  CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

wire::compiler::Lowered CodeOf(const std::string& name) {
  wire::compiler::Lowered code;
  code.object = ReadObject(name);
  const std::string text(code.object.begin(), code.object.end());
  code.kind = text.find("rgpu_frame_bytes") == std::string::npos ? kKernelLoop : kKernelCoroutine;
  return code;
}

std::shared_ptr<const Kernel> LoadKernel(const std::string& name, size_t functions) {
  wire::compiler::Lowered code = CodeOf(name);
  if (functions > 1) code.function_ordinals = {1};
  std::shared_ptr<const Kernel> kernel;
  const Outcome made = Kernel::Make(code, functions, &kernel);
  CHECK_EQ(made.message, std::string());
  return kernel;
}

TestDevice::TestDevice(unsigned threads, double timeout_seconds, uint64_t hostile_seed,
                       uint64_t memory_bytes) {
  // One guard page in front (kernels never come there) and one behind, where the clamp of kernels
  // leads.
  void* base = mmap(nullptr, kBandBytes + 65536, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(base != MAP_FAILED);
  base_ = reinterpret_cast<uint64_t>(base);
  RunnerOptions options;
  options.band_base = base_;
  options.band_bytes = kBandBytes;
  options.threads = threads;
  options.timeout_seconds = timeout_seconds;
  options.hostile_seed = hostile_seed;
  options.memory_bytes = memory_bytes;
  options.windows = this;
  options.services = this;
  runner_ = std::make_unique<GridRunner>(options);
}

TestDevice::~TestDevice() {
  runner_.reset();
  munmap(reinterpret_cast<void*>(base_), kBandBytes + 65536);
}

uint64_t TestDevice::ReserveWindow(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t rounded = (bytes + 4095) / 4096 * 4096;
  if (used_ + rounded + 4096 > room) return 0;
  const uint64_t address = base_ + used_;
  used_ += rounded + 4096;
  windows_out_ += 1;
  most_windows_out_ = std::max(most_windows_out_, windows_out_);
  mprotect(reinterpret_cast<void*>(address), rounded, PROT_READ | PROT_WRITE);
  return address;
}

void TestDevice::ReleaseWindow(uint64_t address, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  windows_out_ -= 1;
  mprotect(reinterpret_cast<void*>(address), bytes, PROT_NONE);
}

void TestDevice::Print(std::string_view text) {
  std::lock_guard<std::mutex> lock(mutex_);
  printed_ += text;
}

void TestDevice::PrintAsserts(std::string_view text) {
  std::lock_guard<std::mutex> lock(mutex_);
  asserts_ += text;
}

std::string TestDevice::asserts() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::move(asserts_);
}

std::string TestDevice::printed() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::move(printed_);
}

FaultInfo TestDevice::fault() {
  std::lock_guard<std::mutex> lock(mutex_);
  return fault_;
}

CUresult TestDevice::RunBytes(const Kernel& kernel, uint32_t blocks, uint32_t threads,
                              const std::vector<uint8_t>& params) {
  Launch launch;
  launch.kernel = &kernel;
  launch.name = "test";
  launch.grid[0] = blocks;
  launch.block[0] = threads;
  launch.dynamic_shared = dynamic_shared;
  launch.params = params.data();
  launch.param_bytes = static_cast<uint32_t>(params.size());
  launch.owner = this;
  FaultInfo fault;
  const CUresult result = runner_->RunGrid(launch, &fault);
  std::lock_guard<std::mutex> lock(mutex_);
  if (result != CUDA_SUCCESS) fault_ = fault;
  return result;
}

}  // namespace rgpu::emu::testing
