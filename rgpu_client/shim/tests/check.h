// A small test runner. TEST registers a test; CHECK reports a failure, and the test continues.
#pragma once

#include <cstdio>
#include <vector>

namespace rgpu::test {

struct Case {
  const char* name;
  void (*run)();
};
std::vector<Case>& Cases();
void Fail(const char* file, int line, const char* what);

struct Registration {
  Registration(const char* name, void (*run)()) { Cases().push_back({name, run}); }
};

}  // namespace rgpu::test

#define TEST(name)                                                        \
  static void name();                                                     \
  static const rgpu::test::Registration registration_##name(#name, name); \
  static void name()

#define CHECK(condition) ((condition) ? (void)0 : rgpu::test::Fail(__FILE__, __LINE__, #condition))
