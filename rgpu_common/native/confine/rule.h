// One rule of a filter of system calls: the answer to one call, depending on its arguments.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace rgpu::confine {

// Where a rule continues after a test. kNext is the next instruction of the rule.
enum class To : unsigned char { kNext, kAllow, kRefuse };

// A rule is a list of tests in order. Each test names where the rule continues; `Append` counts the
// instructions in between. A rule that runs past its last test refuses the call.
class Rule {
 public:
  explicit Rule(int call) : call_(call) {}

  // Makes later tests use this argument of the call: its lower 32 bits, or its upper 32 bits.
  Rule& Load(unsigned int argument, bool upper_half = false);
  // Makes later tests ignore these bits of the loaded value.
  Rule& Ignore(unsigned int bits);
  Rule& IfEqual(unsigned int value, To then, To otherwise = To::kNext);
  Rule& IfAnyBit(unsigned int bits, To then, To otherwise = To::kNext);
  // Continues the rule there in any case.
  Rule& Always(To then);

  // Adds the instructions to a program. A call with another number skips them.
  void AppendTo(std::vector<sock_filter>* program) const;

 private:
  struct Step {
    sock_filter instruction;
    To then = To::kNext;
    To otherwise = To::kNext;
    bool jumps = false;
  };

  Rule& Test(unsigned short test, unsigned int value, To then, To otherwise);

  int call_;
  std::vector<Step> steps_;
};

constexpr sock_filter Statement(unsigned short code, unsigned int value) {
  return {code, 0, 0, value};
}

extern const unsigned int kAllowCall;
// The answer that makes the call fail with EPERM.
extern const unsigned int kRefuseCall;

}  // namespace rgpu::confine
