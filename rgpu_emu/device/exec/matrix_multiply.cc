// mma, mma.sp and wmma.mma.
//
// Integers are exact. Products of f16, bf16, tf32 and fp8 are exact, are added to C in double in
// the order of k, and the sum is rounded once. f64 is a chain of fused multiply-adds in the order
// of k that begins with C.
#include <fenv.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "rgpu_emu/device/exec/block_scheduler.h"
#include "rgpu_emu/device/exec/matrix_layout.h"
#include "rgpu_emu/device/exec/matrix_ops.h"
#include "rgpu_emu/device/exec/matrix_values.h"

namespace rgpu::emu {
namespace {

constexpr size_t kMostElements = 1024;  // of a stored multiplicand
constexpr size_t kMostResults = 256;
constexpr int kRoundings[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

struct Shape {
  size_t m;
  size_t n;
  size_t k;
  size_t stored;  // elements of A that are stored along k
  bool wmma;
  bool sparse;

  explicit Shape(const MatrixCall& call)
      : m(call.m),
        n(call.n),
        k(call.k),
        stored((call.flags & kMatrixSparse) != 0 ? call.k / 2 : call.k),
        wmma(call.kind == kMatrixWmma),
        sparse((call.flags & kMatrixSparse) != 0) {}

  bool Fits() const {
    const bool rows = (m == 8 || m == 16 || m == 32) && (n == 8 || n == 16 || n == 32);
    return rows && k >= 4 && k <= 256 && m * n <= kMostResults;
  }
};

// Calls `put(word, row, column)` for each register of a multiplicand.
template <typename Put>
inline void ForRegisters(const MultiplicandLayout& layout, MatrixCalls calls, bool second,
                         Put put) {
  for (size_t lane = 0; lane < kWarpSize; ++lane) {
    const uint32_t* words = second ? calls[lane]->b : calls[lane]->a;
    for (size_t i = 0; i < layout.count; ++i) {
      const MatrixPlace place = layout.Place(lane, i);
      put(words, i, place.row, place.column);
    }
  }
}

template <typename Number, MatrixType kType>
void ReadAs(const MultiplicandLayout& layout, MatrixCalls calls, bool second, Number* out,
            size_t row_step, size_t step) {
  constexpr uint32_t kBits = MatrixBits(kType);
  ForRegisters(layout, calls, second,
               [=](const uint32_t* words, size_t i, size_t row, size_t column) {
                 Number* to = out + row * row_step + column * step;
                 if constexpr (kBits == 64) {
                   *to = DoubleAt(words + 2 * i);
                 } else {
                   for (size_t e = 0; e < 32 / kBits; ++e, to += step) {
                     const uint32_t bits = words[i] >> (e * kBits % 32);
                     if constexpr (std::is_same_v<Number, double>) {
                       *to = DoubleFrom<kType>(bits);
                     } else {
                       *to = IntFrom<kType>(bits);
                     }
                   }
                 }
               });
}

// Reads a multiplicand as numbers. Element (row, column) is at row * row_step + column * step.
bool Read(const MultiplicandLayout& layout, MatrixType type, MatrixCalls calls, bool second,
          double* out, size_t row_step, size_t step) {
  switch (type) {
#define RGPU_READ(kType) \
  case kType:            \
    return ReadAs<double, kType>(layout, calls, second, out, row_step, step), true
    RGPU_READ(kMatrixF16);
    RGPU_READ(kMatrixBf16);
    RGPU_READ(kMatrixTf32);
    RGPU_READ(kMatrixF64);
    RGPU_READ(kMatrixE4m3);
    RGPU_READ(kMatrixE5m2);
#undef RGPU_READ
    default:
      return false;
  }
}

bool Read(const MultiplicandLayout& layout, MatrixType type, MatrixCalls calls, bool second,
          int32_t* out, size_t row_step, size_t step) {
  switch (type) {
#define RGPU_READ(kType) \
  case kType:            \
    return ReadAs<int32_t, kType>(layout, calls, second, out, row_step, step), true
    RGPU_READ(kMatrixU8);
    RGPU_READ(kMatrixS8);
    RGPU_READ(kMatrixU4);
    RGPU_READ(kMatrixS4);
#undef RGPU_READ
    default:
      return false;
  }
}

double ReadResult(const MatrixCall& call, size_t i) {
  switch (call.types[2]) {
    case kMatrixF16:
      return DoubleFromHalf(call.c[i / 2] >> (i % 2 * 16) & 0xffff);
    case kMatrixF64:
      return DoubleAt(call.c + 2 * i);
    default:
      return static_cast<double>(std::bit_cast<float>(call.c[i]));
  }
}

void WriteResult(MatrixCall* call, size_t i, double value) {
  switch (call->types[3]) {
    case kMatrixF16: {
      const size_t shift = i % 2 * 16;
      call->c[i / 2] = (call->c[i / 2] & ~(0xffffu << shift)) | HalfBits(value) << shift;
      break;
    }
    case kMatrixF64:
      std::memcpy(call->c + 2 * i, &value, sizeof(value));
      break;
    default:
      call->c[i] = FloatBits(value);
  }
}

// Calls `visit(call, index, place in the matrix)` for each element of the accumulator.
template <typename Visit>
inline void ForResults(const Shape& s, MatrixCalls calls, Visit visit) {
  const size_t count = s.m * s.n / kWarpSize;
  for (size_t lane = 0; lane < kWarpSize; ++lane) {
    for (size_t i = 0; i < count; ++i) {
      const MatrixPlace place = AccumulatorPlace(s.wmma, s.m, s.n, lane, i);
      visit(calls[lane], i, place.row * s.n + place.column);
    }
  }
}

// The 16 bits of metadata that say where the elements of one eighth of A's rows are: four bits for
// each chunk, which is four elements wide (tf32: two, s4 and u4: eight).
//
// 16-bit and 32-bit elements: a thread has the chunks of two rows, 8 apart, and one or two threads
// cover k. Smaller ones: a thread has one row, the next thread the row 8 below.
uint32_t ChunkBits(const Shape& s, MatrixCalls calls, bool small, size_t row, size_t chunk) {
  const size_t group = (row & 7) * 4;
  const bool below = row >= 8;
  const size_t selector = calls[0]->selector;
  if (small) {
    const size_t threads = s.stored / (calls[0]->types[0] >= kMatrixU4 ? 32 : 16);  // pairs
    const size_t pair = threads == 1 ? selector : chunk / 8;
    const size_t lane = group + pair % 2 * 2 + (below ? 1 : 0);
    return calls[lane]->metadata >> (chunk % 8 * 4) & 15;
  }
  const bool two = s.stored * MatrixBits(calls[0]->types[0]) == 256;  // threads that cover k
  const size_t lane = group + (two ? selector % 2 * 2 + chunk / 4 : selector % 4);
  return calls[lane]->metadata >> (chunk % 4 * 4 + (below ? 16 : 0)) & 15;
}

// Writes for each stored element of A its place along k.
void FindPlaces(const Shape& s, MatrixCalls calls, uint8_t* places) {
  const MatrixType type = calls[0]->types[0];
  const uint32_t bits = MatrixBits(type);
  const size_t width = bits == 4 ? 8 : bits == 32 ? 2 : 4;  // of a chunk
  for (size_t row = 0; row < 16; ++row) {
    for (size_t p = 0; p < s.stored; ++p) {
      const size_t chunk = p / (width / 2);
      const size_t found = ChunkBits(s, calls, bits <= 8, row, chunk);
      size_t within;
      if (width == 2) {
        within = found >> 1 & 1;  // a tf32 is two halves
      } else if (width == 8) {
        within = (found >> (p / 2 % 2 * 2) & 3) * 2 + p % 2;
      } else {
        within = found >> (p % 2 * 2) & 3;
      }
      places[row * s.stored + p] = static_cast<uint8_t>(chunk * width + within);
    }
  }
}

struct Adding {
  template <typename T>
  T operator()(T a, T b, T sum) const {
    return sum + a * b;
  }
};

struct Fused {
  double operator()(double a, double b, double sum) const { return std::fma(a, b, sum); }
};

// Adds A times B to `c`. `places`: null, or for each element of A its place along k.
template <size_t kColumns, typename Number, typename Add>
void Multiply(const Shape& s, const Number* a, const Number* b, const uint8_t* places, Number* c,
              Add add) {
  for (size_t row = 0; row < s.m; ++row) {
    Number sum[kColumns];
    std::copy_n(c + row * kColumns, kColumns, sum);
    for (size_t p = 0; p < s.stored; ++p) {
      const size_t at = row * s.stored + p;
      const Number* factors = b + (places != nullptr ? places[at] : p) * kColumns;
      for (size_t j = 0; j < kColumns; ++j) sum[j] = add(a[at], factors[j], sum[j]);
    }
    std::copy_n(sum, kColumns, c + row * kColumns);
  }
}

template <typename Number, typename Add>
void MultiplyAny(const Shape& s, const Number* a, const Number* b, const uint8_t* places, Number* c,
                 Add add) {
  if (s.n == 8) return Multiply<8>(s, a, b, places, c, add);
  if (s.n == 16) return Multiply<16>(s, a, b, places, c, add);
  Multiply<32>(s, a, b, places, c, add);
}

template <typename Number>
struct Operands {
  alignas(64) Number a[kMostElements];
  alignas(64) Number b[kMostElements];  // row after row: [k][n]
  alignas(64) Number c[kMostResults];
  uint8_t places[kMostElements];

  bool ReadFrom(const Shape& s, MatrixCalls calls) {
    const MatrixCall& call = *calls[0];
    if (s.m * s.stored > kMostElements || s.n * s.k > kMostElements) return false;
    const MultiplicandLayout first(s.wmma, s.m, s.stored, call.types[0]);
    const MultiplicandLayout second(s.wmma, s.n, s.k, call.types[1]);
    if (s.sparse) FindPlaces(s, calls, places);
    return Read(first, call.types[0], calls, false, a, s.stored, 1) &&
           Read(second, call.types[1], calls, true, b, 1, s.n);
  }
  const uint8_t* Places(const Shape& s) const { return s.sparse ? places : nullptr; }
};

bool MultiplyFloats(const Shape& s, MatrixCalls calls) {
  Operands<double> o;
  if (!o.ReadFrom(s, calls)) return false;
  ForResults(s, calls,
             [&](MatrixCall* call, size_t i, size_t at) { o.c[at] = ReadResult(*call, i); });
  if (calls[0]->types[0] == kMatrixF64) {
    fesetround(kRoundings[calls[0]->rounding & 3]);
    MultiplyAny(s, o.a, o.b, o.Places(s), o.c, Fused());
    fesetround(FE_TONEAREST);
  } else {
    MultiplyAny(s, o.a, o.b, o.Places(s), o.c, Adding());
  }
  ForResults(s, calls,
             [&](MatrixCall* call, size_t i, size_t at) { WriteResult(call, i, o.c[at]); });
  return true;
}

uint32_t AddWhole(uint32_t c, int32_t sum, bool saturate) {
  const int64_t total = int64_t{static_cast<int32_t>(c)} + sum;
  if (!saturate) return static_cast<uint32_t>(total);
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return static_cast<uint32_t>(std::clamp(total, kLeast, kMost));
}

// No sum of products overflows: 128 products have at most 16 bits each.
bool MultiplyIntegers(const Shape& s, MatrixCalls calls) {
  Operands<int32_t> o;
  if (!o.ReadFrom(s, calls)) return false;
  std::fill_n(o.c, s.m * s.n, 0);
  MultiplyAny(s, o.a, o.b, o.Places(s), o.c, Adding());
  const bool saturate = (calls[0]->flags & kMatrixSaturate) != 0;
  ForResults(s, calls, [&](MatrixCall* call, size_t i, size_t at) {
    call->c[i] = AddWhole(call->c[i], o.c[at], saturate);
  });
  return true;
}

bool MultiplyBits(const Shape& s, MatrixCalls calls) {
  constexpr size_t kMostWords = 8;
  uint32_t a[16 * kMostWords];
  uint32_t b[16 * kMostWords];
  const size_t words = s.k / 32;
  if (s.m > 16 || s.n != 8 || words == 0) return false;
  const auto read = [&](size_t rows, bool second, uint32_t* out) {
    const MultiplicandLayout layout(s.wmma, rows, s.k, kMatrixB1);
    ForRegisters(layout, calls, second, [&](const uint32_t* w, size_t i, size_t row, size_t k) {
      out[row * words + k / 32] = w[i];
    });
  };
  read(s.m, false, a);
  read(s.n, true, b);
  const bool both = (calls[0]->flags & kMatrixAnd) != 0;
  ForResults(s, calls, [&](MatrixCall* call, size_t i, size_t at) {
    const uint32_t* x = a + at / s.n * words;
    const uint32_t* y = b + at % s.n * words;
    for (size_t w = 0; w < words; ++w)
      call->c[i] += static_cast<uint32_t>(std::popcount(both ? x[w] & y[w] : x[w] ^ y[w]));
  });
  return true;
}

// The element of C or D that a thread of a quad pair holds. `half`: 0, or 4 for the upper quad.
MatrixPlace QuadPlace(MatrixType type, size_t half, size_t lane, size_t i) {
  if (type == kMatrixF16) return {half + lane % 4, i};
  return {half + (lane & 1) + (i & 2), (i & 4) + (lane & 2) + (i & 1)};
}

// One of the four products of mma.m8n8k4. Lanes `first` to `first` + 3 have the upper half of A's
// rows and the left half of B's columns, and the lanes 16 above have the rest.
void MultiplyQuad(MatrixCalls calls, size_t first) {
  const bool column_a = (calls[0]->flags & kMatrixColumnA) != 0;
  const bool column_b = (calls[0]->flags & kMatrixColumnB) != 0;
  double a[8][4];
  double b[4][8];
  double c[8][8];
  for (size_t half = 0; half < 8; half += 4) {
    for (size_t low = 0; low < 4; ++low) {
      const MatrixCall& call = *calls[first + low + half * 4];
      for (size_t i = 0; i < 4; ++i) {
        const size_t shift = i % 2 * 16;
        (column_a ? a[half + i][low] : a[half + low][i]) =
            DoubleFromHalf(call.a[i / 2] >> shift & 0xffff);
        (column_b ? b[i][half + low] : b[low][half + i]) =
            DoubleFromHalf(call.b[i / 2] >> shift & 0xffff);
      }
      for (size_t i = 0; i < 8; ++i) {
        const MatrixPlace at = QuadPlace(call.types[2], half, low, i);
        c[at.row][at.column] = ReadResult(call, i);
      }
    }
  }
  for (size_t half = 0; half < 8; half += 4) {
    for (size_t low = 0; low < 4; ++low) {
      MatrixCall* call = calls[first + low + half * 4];
      for (size_t i = 0; i < 8; ++i) {
        const MatrixPlace at = QuadPlace(call->types[3], half, low, i);
        double sum = c[at.row][at.column];
        for (size_t k = 0; k < 4; ++k) sum += a[at.row][k] * b[k][at.column];
        WriteResult(call, i, sum);
      }
    }
  }
}

}  // namespace

bool MultiplyMatrices(MatrixCalls calls) {
  const Shape s(*calls[0]);
  if (!s.Fits()) return false;
  const MatrixType type = calls[0]->types[0];
  if (type == kMatrixB1) return MultiplyBits(s, calls);
  if (type >= kMatrixU8) return MultiplyIntegers(s, calls);
  return MultiplyFloats(s, calls);
}

bool MultiplyQuads(MatrixCalls calls) {
  for (size_t first = 0; first < 16; first += 4) MultiplyQuad(calls, first);
  return true;
}

}  // namespace rgpu::emu
