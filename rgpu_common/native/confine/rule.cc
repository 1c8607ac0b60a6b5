#include "rgpu_common/native/confine/rule.h"

#include <linux/seccomp.h>

#include <cerrno>
#include <cstddef>

namespace rgpu::confine {

const unsigned int kAllowCall = SECCOMP_RET_ALLOW;
const unsigned int kRefuseCall = SECCOMP_RET_ERRNO | EPERM;

// Both architectures that rgpu runs on are little-endian.
Rule& Rule::Load(unsigned int argument, bool upper_half) {
  const size_t at = offsetof(seccomp_data, args) + size_t{argument} * 8 + (upper_half ? 4 : 0);
  steps_.push_back({.instruction = Statement(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(at))});
  return *this;
}

Rule& Rule::Ignore(unsigned int bits) {
  steps_.push_back({.instruction = Statement(BPF_ALU | BPF_AND | BPF_K, ~bits)});
  return *this;
}

Rule& Rule::IfEqual(unsigned int value, To then, To otherwise) {
  return Test(BPF_JEQ, value, then, otherwise);
}

Rule& Rule::IfAnyBit(unsigned int bits, To then, To otherwise) {
  return Test(BPF_JSET, bits, then, otherwise);
}

// A value is at least 0 in any case.
Rule& Rule::Always(To then) { return Test(BPF_JGE, 0, then, then); }

Rule& Rule::Test(unsigned short test, unsigned int value, To then, To otherwise) {
  const auto code = static_cast<unsigned short>(BPF_JMP | test | BPF_K);
  steps_.push_back({Statement(code, value), then, otherwise, true});
  return *this;
}

// The program of a rule: its call's number, its steps, then the two answers, refusal first.
void Rule::AppendTo(std::vector<sock_filter>* program) const {
  const size_t count = steps_.size();
  const auto skip = static_cast<unsigned char>(count + 2);
  program->push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, skip, static_cast<unsigned int>(call_)});
  for (size_t i = 0; i < count; ++i) {
    const auto distance = [&](To to) {
      const size_t refusal = count - i - 1;
      return static_cast<unsigned char>(to == To::kNext     ? 0
                                        : to == To::kRefuse ? refusal
                                                            : refusal + 1);
    };
    sock_filter instruction = steps_[i].instruction;
    if (steps_[i].jumps) {
      instruction.jt = distance(steps_[i].then);
      instruction.jf = distance(steps_[i].otherwise);
    }
    program->push_back(instruction);
  }
  program->push_back(Statement(BPF_RET | BPF_K, kRefuseCall));
  program->push_back(Statement(BPF_RET | BPF_K, kAllowCall));
}

}  // namespace rgpu::confine
