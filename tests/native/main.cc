// usage: rgpu_native_tests [--list | GROUP...]
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/native/testing.h"

namespace rgpu::testing {
namespace {

struct Test {
  std::string group;
  std::string name;
  TestFunction function;
};

std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

enum class Result { kOk, kFailed, kSkipped };

Result RunOne(const Test& test) {
  try {
    test.function();
  } catch (const CheckFailed& failure) {
    std::printf("FAILED %s.%s: %s\n", test.group.c_str(), test.name.c_str(), failure.what());
    return Result::kFailed;
  } catch (const Skipped& why) {
    std::printf("skipped %s.%s: %s\n", test.group.c_str(), test.name.c_str(), why.what());
    return Result::kSkipped;
  }
  std::printf("ok     %s.%s\n", test.group.c_str(), test.name.c_str());
  std::fflush(stdout);
  return Result::kOk;
}

int Main(const std::set<std::string>& wanted) {
  int run = 0;
  int failed = 0;
  int skipped = 0;
  for (const Test& test : Tests()) {
    if (!wanted.empty() && !wanted.contains(test.group)) continue;
    ++run;
    const Result result = RunOne(test);
    failed += result == Result::kFailed ? 1 : 0;
    skipped += result == Result::kSkipped ? 1 : 0;
  }
  std::printf("%d tests, %d failed, %d skipped\n", run, failed, skipped);
  return run > 0 && failed == 0 ? 0 : 1;
}

}  // namespace

Register::Register(const char* group, const char* name, TestFunction function) {
  Tests().push_back({group, name, function});
}

}  // namespace rgpu::testing

int main(int count, char** values) {
  if (count == 2 && std::strcmp(values[1], "--list") == 0) {
    std::set<std::string> groups;
    for (const auto& test : rgpu::testing::Tests()) groups.insert(test.group);
    for (const std::string& group : groups) std::puts(group.c_str());
    return 0;
  }
  return rgpu::testing::Main({values + 1, values + count});
}
