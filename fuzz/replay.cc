// Runs the inputs in files and folders through a target, and damaged forms of each: what compilers
// without libFuzzer can do, and what CI runs.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

// A fixed sequence, so that a failure can be repeated.
uint32_t Random() {
  static uint32_t state = 1;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

void RunOne(std::vector<uint8_t> input) {
  LLVMFuzzerTestOneInput(input.data(), input.size());
  constexpr int kDamaged = 200;
  for (int i = 0; i < kDamaged && !input.empty(); ++i) {
    std::vector<uint8_t> damaged = input;
    for (uint32_t changes = Random() % 4; changes > 0; --changes) {
      damaged[Random() % damaged.size()] = static_cast<uint8_t>(Random());
    }
    if (Random() % 4 == 0) damaged.resize(Random() % damaged.size());
    LLVMFuzzerTestOneInput(damaged.data(), damaged.size());
  }
}

int RunPath(const fs::path& path) {
  if (fs::is_directory(path)) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(path)) count += RunPath(entry.path());
    return count;
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> input((std::istreambuf_iterator<char>(file)), {});
  RunOne(std::move(input));
  return 1;
}

}  // namespace

int main(int count, char** values) {
  int inputs = 0;
  for (int i = 1; i < count; ++i) inputs += RunPath(values[i]);
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
