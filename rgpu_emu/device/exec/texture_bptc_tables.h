// Tables of the BPTC formats (BC6H and BC7), from the Khronos Data Format specification.
#pragma once

#include <cstdint>

namespace rgpu::emu {

// The subset of each of 16 texels: a bit for each, the first texel lowest.
inline constexpr uint16_t kTwoSubsets[64] = {
    0xcccc, 0x8888, 0xeeee, 0xecc8, 0xc880, 0xfeec, 0xfec8, 0xec80, 0xc800, 0xffec, 0xfe80,
    0xe800, 0xffe8, 0xff00, 0xfff0, 0xf000, 0xf710, 0x8e,   0x7100, 0x8ce,  0x8c,   0x7310,
    0x3100, 0x8cce, 0x88c,  0x3110, 0x6666, 0x366c, 0x17e8, 0xff0,  0x718e, 0x399c, 0xaaaa,
    0xf0f0, 0x5a5a, 0x33cc, 0x3c3c, 0x55aa, 0x9696, 0xa55a, 0x73ce, 0x13c8, 0x324c, 0x3bdc,
    0x6996, 0xc33c, 0x9966, 0x660,  0x272,  0x4e4,  0x4e40, 0x2720, 0xc936, 0x936c, 0x39c6,
    0x639c, 0x9336, 0x9cc6, 0x817e, 0xe718, 0xccf0, 0xfcc,  0x7744, 0xee22,
};

// Two bits for each texel.
inline constexpr uint32_t kThreeSubsets[64] = {
    0xaa685050, 0x6a5a5040, 0x5a5a4200, 0x5450a0a8, 0xa5a50000, 0xa0a05050, 0x5555a0a0, 0x5a5a5050,
    0xaa550000, 0xaa555500, 0xaaaa5500, 0x90909090, 0x94949494, 0xa4a4a4a4, 0xa9a59450, 0x2a0a4250,
    0xa5945040, 0xa425054,  0xa5a5a500, 0x55a0a0a0, 0xa8a85454, 0x6a6a4040, 0xa4a45000, 0x1a1a0500,
    0x50a4a4,   0xaaa59090, 0x14696914, 0x69691400, 0xa08585a0, 0xaa821414, 0x50a4a450, 0x6a5a0200,
    0xa9a58000, 0x5090a0a8, 0xa8a09050, 0x24242424, 0xaa5500,   0x24924924, 0x24499224, 0x50a50a50,
    0x500aa550, 0xaaaa4444, 0x66660000, 0xa5a0a5a0, 0x50a050a0, 0x69286928, 0x44aaaa44, 0x66666600,
    0xaa444444, 0x54a854a8, 0x95809580, 0x96969600, 0xa85454a8, 0x80959580, 0xaa141414, 0x96960000,
    0xaaaa1414, 0xa05050a0, 0xa0a5a5a0, 0x96000000, 0x40804080, 0xa9a8a9a8, 0xaaaaaa44, 0x2a4a5254,
};

// The texel of a subset whose index has one bit less. It is texel 0 for the first subset.
inline constexpr uint8_t kAnchorOfTwo[64] = {
    15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 2,  8, 2,  2, 8,
    8,  15, 2,  8,  2,  2,  8,  8,  2,  2,  15, 15, 6,  8,  2,  8,  15, 15, 2, 8,  2, 2,
    2,  15, 15, 6,  6,  2,  6,  8,  15, 15, 2,  2,  15, 15, 15, 15, 15, 2,  2, 15,
};
inline constexpr uint8_t kSecondAnchorOfThree[64] = {
    3,  3,  15, 15, 8, 3,  15, 15, 8,  8,  6, 6,  6, 5,  3, 3,  3,  3,  8,  15, 3,  3,
    6,  10, 5,  8,  8, 6,  8,  5,  15, 15, 8, 15, 3, 5,  6, 10, 8,  15, 15, 3,  15, 5,
    15, 15, 15, 15, 3, 15, 5,  5,  5,  8,  5, 10, 5, 10, 8, 13, 15, 12, 3,  3,
};
inline constexpr uint8_t kThirdAnchorOfThree[64] = {
    15, 8, 8, 3,  15, 15, 3,  8,  15, 15, 15, 15, 15, 15, 15, 8,  15, 8,  15, 3,  15, 8,
    15, 8, 3, 15, 6,  10, 15, 15, 10, 8,  15, 3,  15, 10, 10, 8,  9,  10, 6,  15, 8,  15,
    3,  6, 6, 8,  15, 3,  15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 3,  15, 15, 8,
};

// The weight of the second end, in 64ths, by index.
inline constexpr uint8_t kWeights2[4] = {0, 21, 43, 64};
inline constexpr uint8_t kWeights3[8] = {0, 9, 18, 27, 37, 46, 55, 64};
inline constexpr uint8_t kWeights4[16] = {0,  4,  9,  13, 17, 21, 26, 30,
                                          34, 38, 43, 47, 51, 55, 60, 64};

struct Bc7Mode {
  uint8_t subsets;
  uint8_t partition_bits;
  uint8_t rotation_bits;
  uint8_t selection_bits;
  uint8_t colour_bits;
  uint8_t alpha_bits;
  uint8_t end_bits;     // one more bit for each end
  uint8_t shared_bits;  // one more bit for each subset
  uint8_t index_bits;
  uint8_t second_index_bits;
};
inline constexpr Bc7Mode kBc7Modes[8] = {
    {3, 4, 0, 0, 4, 0, 1, 0, 3, 0}, {2, 6, 0, 0, 6, 0, 0, 1, 3, 0}, {3, 6, 0, 0, 5, 0, 0, 0, 2, 0},
    {2, 6, 0, 0, 7, 0, 1, 0, 2, 0}, {1, 0, 2, 1, 5, 6, 0, 0, 2, 3}, {1, 0, 2, 0, 7, 8, 0, 0, 2, 2},
    {1, 0, 0, 0, 7, 7, 1, 0, 4, 0}, {2, 6, 0, 0, 5, 5, 1, 0, 2, 0},
};

// One of the modes of BC6H: how many bits its ends and their differences have, and where they lie.
// `g2.3:0` is bits 3 to 0 of the green of end 2, lowest first; `r0.10:11` has the highest first.
struct Bc6Mode {
  uint8_t code;
  bool two;         // two subsets
  uint8_t bits[4];  // of end 0; of red, green and blue of the others
  const char* layout;
};
inline constexpr Bc6Mode kBc6Modes[14] = {
    {0,
     true,
     {10, 5, 5, 5},
     "g2.4 b2.4 b3.4 r0.9:0 g0.9:0 b0.9:0 r1.4:0 g3.4 g2.3:0 g1.4:0 b3.0 g3.3:0 b1.4:0 b3.1 b2.3:0 "
     "r2.4:0 b3.2 r3.4:0 b3.3"},
    {1,
     true,
     {7, 6, 6, 6},
     "g2.5 g3.4 g3.5 r0.6:0 b3.0 b3.1 b2.4 g0.6:0 b2.5 b3.2 g2.4 b0.6:0 b3.3 b3.5 b3.4 r1.5:0 "
     "g2.3:0 g1.5:0 g3.3:0 b1.5:0 b2.3:0 r2.5:0 r3.5:0"},
    {2,
     true,
     {11, 5, 4, 4},
     "r0.9:0 g0.9:0 b0.9:0 r1.4:0 r0.10 g2.3:0 g1.3:0 g0.10 b3.0 g3.3:0 b1.3:0 b0.10 b3.1 b2.3:0 "
     "r2.4:0 b3.2 r3.4:0 b3.3"},
    {6,
     true,
     {11, 4, 5, 4},
     "r0.9:0 g0.9:0 b0.9:0 r1.3:0 r0.10 g3.4 g2.3:0 g1.4:0 g0.10 g3.3:0 b1.3:0 b0.10 b3.1 b2.3:0 "
     "r2.3:0 b3.0 b3.2 r3.3:0 g2.4 b3.3"},
    {10,
     true,
     {11, 4, 4, 5},
     "r0.9:0 g0.9:0 b0.9:0 r1.3:0 r0.10 b2.4 g2.3:0 g1.3:0 g0.10 b3.0 g3.3:0 b1.4:0 b0.10 b2.3:0 "
     "r2.3:0 b3.1 b3.2 r3.3:0 b3.4 b3.3"},
    {14,
     true,
     {9, 5, 5, 5},
     "r0.8:0 b2.4 g0.8:0 g2.4 b0.8:0 b3.4 r1.4:0 g3.4 g2.3:0 g1.4:0 b3.0 g3.3:0 b1.4:0 b3.1 b2.3:0 "
     "r2.4:0 b3.2 r3.4:0 b3.3"},
    {18,
     true,
     {8, 6, 5, 5},
     "r0.7:0 g3.4 b2.4 g0.7:0 b3.2 g2.4 b0.7:0 b3.3 b3.4 r1.5:0 g2.3:0 g1.4:0 b3.0 g3.3:0 b1.4:0 "
     "b3.1 b2.3:0 r2.5:0 r3.5:0"},
    {22,
     true,
     {8, 5, 6, 5},
     "r0.7:0 b3.0 b2.4 g0.7:0 g2.5 g2.4 b0.7:0 g3.5 b3.4 r1.4:0 g3.4 g2.3:0 g1.5:0 g3.3:0 b1.4:0 "
     "b3.1 b2.3:0 r2.4:0 b3.2 r3.4:0 b3.3"},
    {26,
     true,
     {8, 5, 5, 6},
     "r0.7:0 b3.1 b2.4 g0.7:0 b2.5 g2.4 b0.7:0 b3.5 b3.4 r1.4:0 g3.4 g2.3:0 g1.4:0 b3.0 g3.3:0 "
     "b1.5:0 b2.3:0 r2.4:0 b3.2 r3.4:0 b3.3"},
    {30,
     true,
     {6, 6, 6, 6},
     "r0.5:0 g3.4 b3.0 b3.1 b2.4 g0.5:0 g2.5 b2.5 b3.2 g2.4 b0.5:0 g3.5 b3.3 b3.5 b3.4 r1.5:0 "
     "g2.3:0 g1.5:0 g3.3:0 b1.5:0 b2.3:0 r2.5:0 r3.5:0"},
    {3, false, {10, 10, 10, 10}, "r0.9:0 g0.9:0 b0.9:0 r1.9:0 g1.9:0 b1.9:0"},
    {7, false, {11, 9, 9, 9}, "r0.9:0 g0.9:0 b0.9:0 r1.8:0 r0.10 g1.8:0 g0.10 b1.8:0 b0.10"},
    {11,
     false,
     {12, 8, 8, 8},
     "r0.9:0 g0.9:0 b0.9:0 r1.7:0 r0.10:11 g1.7:0 g0.10:11 b1.7:0 b0.10:11"},
    {15,
     false,
     {16, 4, 4, 4},
     "r0.9:0 g0.9:0 b0.9:0 r1.3:0 r0.10:15 g1.3:0 g0.10:15 b1.3:0 b0.10:15"},
};

}  // namespace rgpu::emu
