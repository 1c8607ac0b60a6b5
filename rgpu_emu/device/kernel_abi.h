// The contract between compiled kernels (emitted by rgpu_emu/lower) and the launch runtime
// (rgpu_emu/device/exec). C layout with fixed offsets, which the compiler writes into IR. Change it
// only together with rgpu_emu/lower/abi.py and kKernelAbi.
#pragma once

#include <cstdint>

namespace rgpu::emu {

inline constexpr uint32_t kKernelAbi = 7;

struct BlockInfo;

// What a suspended thread asks of the scheduler. A warp operation waits until every live thread of
// `mask` in the warp has reached the same operation; a barrier waits until enough threads have.
enum ThreadOp : uint32_t {
  kOpRunning = 0,
  kOpBarSync = 1,     // a: barrier id, b: thread count (0 = whole block)
  kOpBarArrive = 2,   // same operands; does not wait
  kOpBarRedPopc = 3,  // value: predicate; result: number of true predicates
  kOpBarRedAnd = 4,   // result 0/1
  kOpBarRedOr = 5,
  kOpShflIdx =
      6,  // value: 32-bit source, a: lane operand b, b: operand c; result: value | pred << 32
  kOpShflUp = 7,
  kOpShflDown = 8,
  kOpShflBfly = 9,
  kOpVoteAll = 10,  // value: predicate; result 0/1
  kOpVoteAny = 11,
  kOpVoteUni = 12,
  kOpVoteBallot = 13,  // result: 32-bit mask
  kOpMatchAny = 14,    // value, a: bits (32 or 64); result: mask
  kOpMatchAll = 15,    // result: mask | pred << 32
  kOpReduxAdd = 16,    // value: 32 bits; result: 32 bits
  kOpReduxMinS = 17,
  kOpReduxMaxS = 18,
  kOpReduxMinU = 19,
  kOpReduxMaxU = 20,
  kOpReduxAnd = 21,
  kOpReduxOr = 22,
  kOpReduxXor = 23,
  kOpWarpSync = 24,
  // a: number of the instruction, place: where the thread is; result: mask of the threads with the
  // same number and place. Answered when no other thread of the warp can run, lowest place first.
  kOpActiveMask = 25,
  kOpYield = 26,  // back-edge of a spinning loop, nanosleep (value: ns)
  // A matrix instruction, for a whole warp. a: number of the instruction, value: host address of
  // the thread's MatrixCall.
  kOpMatrix = 27,
  // After a volatile access of shared memory. Answered when no other thread of the warp can run.
  kOpTogether = 28,
};

// One per thread of the block. The kernel writes it before it suspends. 64 bytes.
struct ThreadState {
  uint32_t op;      // 0
  uint32_t mask;    // 4: membermask of warp operations
  uint32_t a;       // 8
  uint32_t b;       // 12
  uint64_t value;   // 16
  uint64_t result;  // 24: written by the scheduler before it resumes the thread
  // 32: loops and rounds around an activemask, then the place itself (rgpu_emu/lower/places.py)
  uint64_t place[4];
};
static_assert(sizeof(ThreadState) == 64);

// What a matrix instruction does (MatrixCall::kind).
enum MatrixKind : uint8_t {
  kMatrixMma = 0,    // mma, with the fragments of the PTX manual
  kMatrixQuads = 1,  // mma.m8n8k4 of f16: four products, each of a pair of quads
  kMatrixWmma = 2,   // wmma.mma
  kMatrixLoadA = 3,  // wmma.load and wmma.store
  kMatrixLoadB = 4,
  kMatrixLoadC = 5,
  kMatrixStore = 6,
  kMatrixLdmatrix = 7,  // k: matrices; address: host address of this thread's row; result in a
  kMatrixStmatrix = 8,
  kMatrixTranspose = 9,  // movmatrix, in a
};

// The type of a matrix element, in memory and in registers.
enum MatrixType : uint8_t {
  kMatrixF16 = 0,
  kMatrixBf16 = 1,
  kMatrixTf32 = 2,
  kMatrixF32 = 3,
  kMatrixF64 = 4,
  kMatrixE4m3 = 5,
  kMatrixE5m2 = 6,
  kMatrixU8 = 7,
  kMatrixS8 = 8,
  kMatrixU4 = 9,
  kMatrixS4 = 10,
  kMatrixB1 = 11,
  kMatrixS32 = 12,
};

enum MatrixFlags : uint8_t {
  kMatrixSaturate = 1,    // .satfinite
  kMatrixSparse = 2,      // mma.sp
  kMatrixAnd = 4,         // .and.popc instead of .xor.popc
  kMatrixColumnA = 8,     // the layout of A (kMatrixQuads), or in memory, is .col
  kMatrixColumnB = 16,    // the layout of B (kMatrixQuads) is .col
  kMatrixShared = 32,     // address is an offset in the shared window
  kMatrixTransposed = 64  // ldmatrix and stmatrix with .trans
};

// One thread's part of a matrix instruction. It lies in the thread's frame. 160 bytes.
struct MatrixCall {
  MatrixKind kind;      // 0
  MatrixFlags flags;    // 1
  uint8_t m;            // 2
  uint8_t n;            // 3
  uint16_t k;           // 4
  MatrixType types[4];  // 6: of A, B, C and D; that of memory first
  uint8_t selector;     // 10: sparsity selector
  uint8_t rounding;     // 11: of f64: 0 rn, 1 rz, 2 rm, 3 rp
  uint32_t stride;      // 12: elements between rows (or columns) in memory
  uint32_t a[16];       // 16: registers of A
  uint32_t b[8];        // 80
  uint32_t c[8];        // 112: registers of C, and then of D
  uint32_t metadata;    // 144
  uint32_t reserved;    // 148
  uint64_t address;     // 152
};
static_assert(sizeof(MatrixCall) == 160);

// What a texture or surface instruction does (TextureCall::op).
enum TextureOp : uint8_t {
  kTextureRead = 0,          // tex of the first level
  kTextureLevel = 1,         // tex.level
  kTextureGradient = 2,      // tex.grad
  kTextureGather = 3,        // tld4. detail: the component
  kTextureQuery = 4,         // txq. detail: a TextureAttribute; lod: the level
  kTextureIs = 5,            // istypep.texref: data[0] is 1 or 0
  kSurfaceIs = 6,            // istypep.surfref
  kSurfaceQuery = 7,         // suq
  kSurfaceLoad = 8,          // suld.b. detail: bytes of an element
  kSurfaceStore = 9,         // sust.b
  kSurfaceStoreTexel = 10,   // sust.p
  kSurfaceReduce = 11,       // sured.b. detail: bytes; reduction: a SurfaceReduction
  kSurfaceReduceTexel = 12,  // sured.p
};

enum TextureGeometry : uint8_t {
  kGeometry1D = 0,
  kGeometry2D = 1,
  kGeometry3D = 2,
  kGeometry1DArray = 3,
  kGeometry2DArray = 4,
  kGeometryCube = 5,
  kGeometryCubeArray = 6,
};

// What happens where a surface has no element (TextureCall::outside).
enum SurfaceOutside : uint8_t { kOutsideTrap = 0, kOutsideClamp = 1, kOutsideZero = 2 };

enum SurfaceReduction : uint8_t {
  kReduceAdd = 0,
  kReduceAnd = 1,
  kReduceOr = 2,
  kReduceMinUnsigned = 3,
  kReduceMaxUnsigned = 4,
  kReduceMinSigned = 5,
  kReduceMaxSigned = 6,
};

enum TextureAttribute : uint8_t {
  kAttributeWidth = 0,
  kAttributeHeight = 1,
  kAttributeDepth = 2,
  kAttributeChannelDataType = 3,
  kAttributeChannelOrder = 4,
  kAttributeNormalizedCoordinates = 5,
  kAttributeArraySize = 6,
  kAttributeLevels = 7,
  kAttributeSamples = 8,
  kAttributeForceUnnormalized = 9,
  kAttributeFilterMode = 10,
  kAttributeAddressMode0 = 11,
  kAttributeAddressMode1 = 12,
  kAttributeAddressMode2 = 13,
  kAttributeMemoryLayout = 14,
};

// One texture or surface instruction of one thread. It lies in the thread's frame. 112 bytes.
struct TextureCall {
  uint64_t object;             // 0: any value
  TextureOp op;                // 8
  TextureGeometry geometry;    // 9
  uint8_t integers;            // 10: 1: the coordinates and the level are integers
  uint8_t detail;              // 11: see TextureOp
  uint8_t elements;            // 12: of data
  SurfaceOutside outside;      // 13
  SurfaceReduction reduction;  // 14
  uint8_t reserved;            // 15
  uint32_t layer;              // 16: of an array geometry
  uint32_t at[3];              // 20: coordinates
  int32_t offset[3];           // 32: in texels; the lowest four bits count
  uint32_t lod;                // 44
  uint32_t dx[3];              // 48: gradients
  uint32_t dy[3];              // 60
  uint64_t data[4];            // 72: the result, or what is stored: as in the registers, packed
  uint64_t unused;             // 104
};
static_assert(sizeof(TextureCall) == 112);

// Functions that kernels may call. Only those marked "returns" return to the kernel.
struct KernelRuntime {
  // 0: ends the launch with this CUresult, or with kTrapStackFull
  void (*trap)(BlockInfo*, uint32_t result);
  // 8: returns. __assertfail(message, file, line, function, charSize) with arena addresses, and the
  // thread, which ends then. The launch ends with CUDA_ERROR_ASSERT.
  void (*assertfail)(BlockInfo*, uint64_t message, uint64_t file, uint32_t line, uint64_t function,
                     uint64_t char_bytes, uint32_t tid_x, uint32_t tid_y, uint32_t tid_z);
  int32_t (*vprintf)(BlockInfo*, uint64_t format, uint64_t arguments);  // 16: returns
  uint64_t (*malloc)(BlockInfo*, uint64_t bytes);                       // 24: returns; 0 = none
  void (*free)(BlockInfo*, uint64_t address);                           // 32: returns
  uint64_t (*globaltimer)(void);                                        // 40: returns ns
  uint64_t (*function_address)(
      BlockInfo*, uint64_t token);  // 48: checks a function-pointer token, traps if bad
  // 56: returns if the object and the place are what the instruction needs, else ends the launch
  void (*texture)(BlockInfo*, TextureCall*);
};

// One per launch, read-only for kernels.
struct LaunchInfo {
  uint64_t band_base;   // 0: first address of the arena band (the emulated device is mapped here)
  uint64_t band_bytes;  // 8: an access outside [base, base+bytes) is clamped onto the guard page at
                        // the end
  const uint64_t* globals;       // 16: device address of each module global, by ordinal
  const uint8_t* params;         // 24: parameter bytes, padded with 64 zero bytes
  const KernelRuntime* runtime;  // 32
  const uint32_t* stop;       // 40: polled on back-edges; not 0 = trap(CUDA_ERROR_LAUNCH_TIMEOUT)
  const uint64_t* functions;  // 48: host address of each address-taken device function, by ordinal
  uint32_t grid[3];           // 56
  uint32_t block[3];          // 68
  uint32_t dynamic_shared;    // 80: bytes
  uint32_t grid_id;           // 84
  uint32_t sm_count;          // 88: %nsmid; BlockInfo::smid is below it
  uint32_t reserved;          // 92
  // 96: arena address of the barrier of a cooperative grid (gang.h); 0 for other grids. Kernels
  // read it as %envreg1 (high half) and %envreg2.
  uint64_t grid_workspace;
};
static_assert(sizeof(LaunchInfo) == 104);

// The trap of a thread without room for a call or for alloca: CUDA_ERROR_LAUNCH_FAILED, and above
// it what went wrong.
inline constexpr uint32_t kTrapStackFull = 719 | 1 << 16;

// A function pointer in kernels and module data: kFunctionToken | ordinal. The ordinal is the
// function's place in the LOADED reply. KernelRuntime::function_address checks the token and
// returns LaunchInfo::functions[ordinal]. rgpu_fn_<ordinal> has the fixed signature
//   void(BlockInfo*, uint32_t tid_x, uint32_t tid_y, uint32_t tid_z, uint64_t local_stack,
//        uint8_t* arguments, uint64_t signature)
// and is called by kernels only. It traps if `signature` is not its own.
inline constexpr uint64_t kFunctionToken = 0x7267'0000'0000'0000;

// One per running block.
struct BlockInfo {
  const LaunchInfo* launch;  // 0
  uint64_t
      shared_base;  // 8: arena address of the block's shared window (static first, then dynamic)
  uint32_t shared_bytes;  // 16: static + dynamic; a .shared access is clamped below it + guard
  uint32_t local_bytes;   // 20: per thread
  uint64_t
      local_base;  // 24: arena address of thread 0's local depot; thread t's is + t * local_bytes
  ThreadState* threads;   // 32
  uint32_t ctaid[3];      // 40
  uint32_t thread_count;  // 52
  uint32_t smid;          // 56
  uint32_t reserved;      // 60
};
static_assert(sizeof(BlockInfo) == 64);

// Symbols of an object, by kind (LOWER reply):
//   kKernelLoop:      void rgpu_block(BlockInfo*)
//                     runs all threads of the block itself.
//   kKernelCoroutine: void* rgpu_thread(BlockInfo*, uint32_t tid, void* frame)
//                     runs one thread to its first suspend point and returns a handle. The handle's
//                     first word is the resume function, or null when the thread has ended.
//                     uint64_t rgpu_frame_bytes: size of one frame (16-byte aligned).
// kKernelFlagBarOnly: every suspend point is a whole-block bar.sync 0, so that a plain resume loop
// is enough.
enum KernelKind : uint32_t { kKernelLoop = 0, kKernelCoroutine = 1 };
enum KernelFlags : uint32_t { kKernelFlagBarOnly = 1 };

}  // namespace rgpu::emu
