#include "rgpu_emu/device/exec/symbols.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "rgpu_emu/device/exec/half_float.h"

namespace rgpu::emu {
namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

// Both machines pass a 16-bit float in the low bits of the vector register for a float.
float InRegister(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint16_t FromRegister(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value)); }

float TruncDoubleHalf(double value) { return InRegister(HalfFromDouble(value)); }
float TruncFloatHalf(float value) { return InRegister(HalfFromFloat(value)); }
float TruncDoubleBfloat(double value) { return InRegister(BfloatFromDouble(value)); }
float TruncFloatBfloat(float value) { return InRegister(BfloatFromFloat(value)); }
float ExtendHalfFloat(float value) { return FloatFromHalf(FromRegister(value)); }
double ExtendHalfDouble(float value) {
  return static_cast<double>(FloatFromHalf(FromRegister(value)));
}
float ExtendBfloatFloat(float value) {
  return std::bit_cast<float>(static_cast<uint32_t>(FromRegister(value)) << 16);
}

Int128 DivTi(Int128 a, Int128 b) { return a / b; }
Int128 ModTi(Int128 a, Int128 b) { return a % b; }
Uint128 UdivTi(Uint128 a, Uint128 b) { return a / b; }
Uint128 UmodTi(Uint128 a, Uint128 b) { return a % b; }
Int128 MulTi(Int128 a, Int128 b) {
  return static_cast<Int128>(static_cast<Uint128>(a) * static_cast<Uint128>(b));
}
Int128 MuloTi(Int128 a, Int128 b, int* overflow) {
  Int128 result;
  *overflow = __builtin_mul_overflow(a, b, &result) ? 1 : 0;
  return result;
}
Int128 AshlTi(Int128 a, int by) {
  return static_cast<Int128>(static_cast<Uint128>(a) << (by & 127));
}
Int128 AshrTi(Int128 a, int by) { return a >> (by & 127); }
Uint128 LshrTi(Uint128 a, int by) { return a >> (by & 127); }
double PowiDouble(double a, int b) { return __builtin_powi(a, b); }
float PowiFloat(float a, int b) { return __builtin_powif(a, b); }

struct Row {
  std::string_view name;
  uint64_t address;
};

template <typename F>
uint64_t Address(F* function) {
  return reinterpret_cast<uint64_t>(function);
}

using D1 = double(double);
using F1 = float(float);
using D2 = double(double, double);
using F2 = float(float, float);

#define RGPU_UNARY(name) \
  Row{#name, Address<D1>(::name)}, Row { #name "f", Address<F1>(::name##f) }
#define RGPU_BINARY(name) \
  Row{#name, Address<D2>(::name)}, Row { #name "f", Address<F2>(::name##f) }

auto MakeTable() {
  auto table = std::to_array<Row>({
      RGPU_UNARY(acos),
      RGPU_UNARY(acosh),
      RGPU_UNARY(asin),
      RGPU_UNARY(asinh),
      RGPU_UNARY(atan),
      RGPU_UNARY(atanh),
      RGPU_UNARY(cbrt),
      RGPU_UNARY(ceil),
      RGPU_UNARY(cos),
      RGPU_UNARY(cosh),
      RGPU_UNARY(erf),
      RGPU_UNARY(erfc),
      RGPU_UNARY(exp),
      RGPU_UNARY(exp10),
      RGPU_UNARY(exp2),
      RGPU_UNARY(expm1),
      RGPU_UNARY(floor),
      RGPU_UNARY(log),
      RGPU_UNARY(log10),
      RGPU_UNARY(log1p),
      RGPU_UNARY(log2),
      RGPU_UNARY(nearbyint),
      RGPU_UNARY(rint),
      RGPU_UNARY(round),
      RGPU_UNARY(roundeven),
      RGPU_UNARY(sin),
      RGPU_UNARY(sinh),
      RGPU_UNARY(sqrt),
      RGPU_UNARY(tan),
      RGPU_UNARY(tanh),
      RGPU_UNARY(tgamma),
      RGPU_UNARY(trunc),
      RGPU_BINARY(atan2),
      RGPU_BINARY(copysign),
      RGPU_BINARY(fmax),
      RGPU_BINARY(fmin),
      RGPU_BINARY(fmod),
      RGPU_BINARY(hypot),
      RGPU_BINARY(pow),
      RGPU_BINARY(remainder),
      Row{"fma", Address<double(double, double, double)>(::fma)},
      Row{"fmaf", Address<float(float, float, float)>(::fmaf)},
      Row{"sincos", Address<void(double, double*, double*)>(::sincos)},
      Row{"sincosf", Address<void(float, float*, float*)>(::sincosf)},
      Row{"llrint", Address<long long(double)>(::llrint)},
      Row{"llrintf", Address<long long(float)>(::llrintf)},
      Row{"llround", Address<long long(double)>(::llround)},
      Row{"llroundf", Address<long long(float)>(::llroundf)},
      Row{"lrint", Address<long(double)>(::lrint)},
      Row{"lrintf", Address<long(float)>(::lrintf)},
      Row{"lround", Address<long(double)>(::lround)},
      Row{"lroundf", Address<long(float)>(::lroundf)},
      Row{"ldexp", Address<double(double, int)>(::ldexp)},
      Row{"ldexpf", Address<float(float, int)>(::ldexpf)},
      Row{"memcpy", Address<void*(void*, const void*, size_t)>(::memcpy)},
      Row{"memmove", Address<void*(void*, const void*, size_t)>(::memmove)},
      Row{"memset", Address<void*(void*, int, size_t)>(::memset)},
      Row{"memcmp", Address<int(const void*, const void*, size_t)>(::memcmp)},
      Row{"bcmp", Address<int(const void*, const void*, size_t)>(::memcmp)},
      Row{"__truncdfhf2", Address(TruncDoubleHalf)},
      Row{"__truncsfhf2", Address(TruncFloatHalf)},
      Row{"__truncdfbf2", Address(TruncDoubleBfloat)},
      Row{"__truncsfbf2", Address(TruncFloatBfloat)},
      Row{"__extendhfsf2", Address(ExtendHalfFloat)},
      Row{"__extendhfdf2", Address(ExtendHalfDouble)},
      Row{"__extendbfsf2", Address(ExtendBfloatFloat)},
      Row{"__gnu_h2f_ieee", Address(FloatFromHalf)},
      Row{"__gnu_f2h_ieee", Address(HalfFromFloat)},
      Row{"__divti3", Address(DivTi)},
      Row{"__modti3", Address(ModTi)},
      Row{"__udivti3", Address(UdivTi)},
      Row{"__umodti3", Address(UmodTi)},
      Row{"__multi3", Address(MulTi)},
      Row{"__muloti4", Address(MuloTi)},
      Row{"__ashlti3", Address(AshlTi)},
      Row{"__ashrti3", Address(AshrTi)},
      Row{"__lshrti3", Address(LshrTi)},
      Row{"__powidf2", Address(PowiDouble)},
      Row{"__powisf2", Address(PowiFloat)},
  });
  std::sort(table.begin(), table.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  return table;
}

#undef RGPU_UNARY
#undef RGPU_BINARY

}  // namespace

uint64_t RuntimeSymbol(std::string_view name) {
  static const auto table = MakeTable();
  const auto row = std::lower_bound(table.begin(), table.end(), name,
                                    [](const Row& a, std::string_view b) { return a.name < b; });
  return row != table.end() && row->name == name ? row->address : 0;
}

}  // namespace rgpu::emu
