// Calls that wait for values and write values in stream order.
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

// The condition; FLUSH is refused, because attribute 98 is 0.
constexpr unsigned kWaitFlags = CU_STREAM_WAIT_VALUE_NOR;

struct Word {
  uint64_t address;
  uint64_t value;
  bool wide;
};

void Store(void* argument) {
  const auto* word = static_cast<const Word*>(argument);
  if (word->wide) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word->address), word->value, __ATOMIC_SEQ_CST);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(word->address), static_cast<uint32_t>(word->value),
                     __ATOMIC_SEQ_CST);
  }
}

CUresult Write(Word word) {
  Fault fault;
  return RunGuarded(&Store, &word, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult CheckWord(CUdeviceptr address, uint64_t bytes) {
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const PointerKind kind = KindOf(address, bytes);
  return kind == PointerKind::kDevice || kind == PointerKind::kPinned ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult PushWait(CUstream operand, const AwaitedValue& awaited) {
  if ((awaited.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (awaited.flags > kWaitFlags) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = CheckWord(awaited.address, awaited.wide ? 8 : 4);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [context = stream->context(), awaited] {
    return TheDevice().values.Wait(*context, awaited);
  };
  return stream->Push(std::move(command));
}

CUresult PushWrite(CUstream operand, Word word) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = CheckWord(word.address, word.wide ? 8 : 4);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [word] { return Write(word); };
  return stream->Push(std::move(command));
}

}  // namespace

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return PushWait(stream, {addr, value, flags, false});
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return PushWait(stream, {addr, value, flags, true});
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int) {
  return PushWrite(stream, {addr, value, false});
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int) {
  return PushWrite(stream, {addr, value, true});
}

}  // namespace rgpu::emu
