// The smallest runner that serves: TEST registers, CHECK ends the test.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace rgpu::testing {

// The longest wait for what comes at once on a machine with nothing else to do.
inline constexpr int kSoonMs = 20'000;

using TestFunction = void (*)();

struct Register {
  Register(const char* group, const char* name, TestFunction function);
};

struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a test needs is not there. Only an emulator of user programs lacks what tests ask for so.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void Fail(const char* file, int line, const std::string& what) {
  std::ostringstream text;
  text << file << ":" << line << ": " << what;
  throw CheckFailed(text.str());
}

template <typename A, typename B>
void CheckEqual(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream what;
  what << text << " (" << a << " and " << b << ")";
  Fail(file, line, what.str());
}

}  // namespace rgpu::testing

#define TEST(group, name)                                                                 \
  static void test_##group##_##name();                                                    \
  static const rgpu::testing::Register register_##group##_##name(#group, #name,           \
                                                                 &test_##group##_##name); \
  static void test_##group##_##name()

#define CHECK(condition) \
  ((condition) ? (void)0 : rgpu::testing::Fail(__FILE__, __LINE__, #condition))
#define CHECK_EQ(a, b) rgpu::testing::CheckEqual(a, b, #a " == " #b, __FILE__, __LINE__)
