#include "rgpu_client/shim/tests/check.h"

namespace rgpu::test {
namespace {
int g_failures = 0;
}

std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

void Fail(const char* file, int line, const char* what) {
  ++g_failures;
  std::printf("%s:%d: not true: %s\n", file, line, what);
}

}  // namespace rgpu::test

int main() {
  for (const auto& one : rgpu::test::Cases()) {
    std::printf("%s\n", one.name);
    one.run();
  }
  std::printf("%zu tests, %d failures\n", rgpu::test::Cases().size(), rgpu::test::g_failures);
  return rgpu::test::g_failures == 0 ? 0 : 1;
}
