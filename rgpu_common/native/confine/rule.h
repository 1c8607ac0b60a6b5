// One rule of a filter of system calls: what is answered to one call, depending on its arguments.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace rgpu::confine {

// Where a test of a rule goes on. kNext is the next instruction of the rule.
enum class To : unsigned char { kNext, kAllow, kRefuse };

// A rule is a list of tests, written in order. Tests name where they go on; `Append` counts the
// instructions between. A rule that runs past its last test refuses the call.
class Rule {
 public:
  explicit Rule(int call) : call_(call) {}

  // Later tests look at this argument of the call: its lower 32 bits, or its upper ones.
  Rule& Load(unsigned int argument, bool upper_half = false);
  // Later tests ignore these bits of the loaded value.
  Rule& Ignore(unsigned int bits);
  Rule& IfEqual(unsigned int value, To then, To otherwise = To::kNext);
  Rule& IfAnyBit(unsigned int bits, To then, To otherwise = To::kNext);
  // Where the rule goes on in any case.
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
// The call answers EPERM.
extern const unsigned int kRefuseCall;

}  // namespace rgpu::confine
