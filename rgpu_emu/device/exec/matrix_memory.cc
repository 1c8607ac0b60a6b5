// wmma.load, wmma.store, ldmatrix, stmatrix and movmatrix.
#include <algorithm>
#include <cstring>

#include "rgpu_emu/device/exec/block_scheduler.h"
#include "rgpu_emu/device/exec/matrix_layout.h"
#include "rgpu_emu/device/exec/matrix_ops.h"

namespace rgpu::emu {
namespace {

// Host pointers for device addresses, with the clamp that compiled code has (lower/memory.py).
struct Memory {
  uint64_t base;
  uint64_t bytes;
  uint64_t shared_base;
  uint64_t shared_bytes;

  explicit Memory(const BlockInfo& block)
      : base(block.launch->band_base),
        bytes(block.launch->band_bytes),
        shared_base(block.shared_base),
        shared_bytes(block.shared_bytes) {}

  uint8_t* Pointer(uint64_t address, uint64_t size, bool shared) const {
    uint64_t offset = address - base;
    if (shared) {
      const uint64_t places = shared_bytes < size ? 0 : shared_bytes - (size - 1);
      offset = address < places ? shared_base - base + address : bytes;
    }
    return reinterpret_cast<uint8_t*>(base + std::min(offset, bytes));
  }
};

// One register of a wmma fragment: `count` elements of `bits`, and where the first one belongs.
struct Piece {
  uint32_t* word;
  MatrixPlace place;  // in the fragment's own order: for B column, then row
  size_t count;
};

void MovePiece(const Memory& memory, const MatrixCall& call, const Piece& piece) {
  const uint64_t bits = MatrixBits(call.types[0]);
  const bool shared = (call.flags & kMatrixShared) != 0;
  const bool column = (call.flags & kMatrixColumnA) != 0;
  const bool transposed = column != (call.kind == kMatrixLoadB);
  const size_t step = bits < 8 ? piece.count : 1;  // smaller elements lie side by side
  const uint64_t bytes = bits * step / 8;
  auto* data = reinterpret_cast<uint8_t*>(piece.word);
  for (size_t e = 0; e < piece.count; e += step, data += bytes) {
    const uint64_t row = piece.place.row;
    const uint64_t at = piece.place.column + e;
    const uint64_t index = transposed ? at * call.stride + row : row * call.stride + at;
    uint8_t* host = memory.Pointer(call.address + index * bits / 8, bytes, shared);
    if (call.kind == kMatrixStore) {
      std::memcpy(host, data, bytes);
    } else {
      std::memcpy(data, host, bytes);
    }
  }
}

void MoveMultiplicand(const Memory& memory, MatrixCall* call, size_t lane) {
  const bool first = call->kind == kMatrixLoadA;
  const MultiplicandLayout layout(true, first ? call->m : call->n, call->k, call->types[0]);
  for (size_t i = 0; i < layout.count; ++i) {
    uint32_t* word = call->a + i * (call->types[0] == kMatrixF64 ? 2 : 1);
    MovePiece(memory, *call, {word, layout.Place(lane, i), layout.each});
  }
}

void MoveAccumulator(const Memory& memory, MatrixCall* call, size_t lane) {
  const uint32_t bits = MatrixBits(call->types[0]);
  const size_t each = bits == 16 ? 2 : 1;
  const size_t words = bits == 64 ? 2 : 1;
  const size_t count = call->m * call->n / kWarpSize / each;
  for (size_t i = 0; i < count; ++i) {
    const MatrixPlace place = AccumulatorPlace(true, call->m, call->n, lane, i * each);
    MovePiece(memory, *call, {call->c + i * words, place, each});
  }
}

void Transpose(MatrixCalls calls, size_t index) {
  uint16_t matrix[8][8];
  for (size_t lane = 0; lane < kWarpSize; ++lane)
    std::memcpy(&matrix[lane / 4][lane % 4 * 2], &calls[lane]->a[index], 4);
  for (size_t lane = 0; lane < kWarpSize; ++lane) {
    const uint32_t low = matrix[lane % 4 * 2][lane / 4];
    const uint32_t high = matrix[lane % 4 * 2 + 1][lane / 4];
    calls[lane]->a[index] = low | high << 16;
  }
}

// Moves matrix `index` between registers and the eight rows that lanes 8 * index and up point to.
void MoveMatrix(MatrixCalls calls, size_t index, bool store) {
  for (size_t lane = 0; lane < kWarpSize; ++lane) {
    auto* row = reinterpret_cast<uint8_t*>(calls[index * 8 + lane / 4]->address);
    uint8_t* part = row + lane % 4 * 4;
    if (store) {
      std::memcpy(part, &calls[lane]->a[index], 4);
    } else {
      std::memcpy(&calls[lane]->a[index], part, 4);
    }
  }
}

}  // namespace

bool MoveFragments(const BlockInfo& block, MatrixCalls calls) {
  const Memory memory(block);
  const bool multiplicand = calls[0]->kind == kMatrixLoadA || calls[0]->kind == kMatrixLoadB;
  for (size_t lane = 0; lane < kWarpSize; ++lane) {
    if (multiplicand) {
      MoveMultiplicand(memory, calls[lane], lane);
    } else {
      MoveAccumulator(memory, calls[lane], lane);
    }
  }
  return true;
}

bool MoveRows(MatrixCalls calls) {
  const bool turn = (calls[0]->flags & kMatrixTransposed) != 0;
  if (calls[0]->kind == kMatrixTranspose) {
    Transpose(calls, 0);
    return true;
  }
  const bool store = calls[0]->kind == kMatrixStmatrix;
  for (size_t i = 0; i < std::min<uint32_t>(calls[0]->k, 4); ++i) {
    if (store && turn) Transpose(calls, i);
    MoveMatrix(calls, i, store);
    if (!store && turn) Transpose(calls, i);
  }
  return true;
}

}  // namespace rgpu::emu
