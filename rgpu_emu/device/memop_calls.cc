// Calls that wait for values and write values in stream order.
#include <time.h>

#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

// The condition; FLUSH is refused, because attribute 98 is 0.
constexpr unsigned kWaitFlags = CU_STREAM_WAIT_VALUE_NOR;
constexpr long kPollNs = 50000;
constexpr int kSpins = 200;

template <class T>
bool Holds(T actual, T value, unsigned flags) {
  switch (flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(actual - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return actual == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (actual & value) != 0;
    default:
      return static_cast<T>(~(actual | value)) != 0;
  }
}

struct Word {
  uint64_t address;
  uint64_t value;
  bool wide;
  bool writes;
};

void Access(void* argument) {
  auto* word = static_cast<Word*>(argument);
  if (word->wide) {
    auto* at = reinterpret_cast<uint64_t*>(word->address);
    if (word->writes) __atomic_store_n(at, word->value, __ATOMIC_SEQ_CST);
    if (!word->writes) word->value = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  } else {
    auto* at = reinterpret_cast<uint32_t*>(word->address);
    if (word->writes) __atomic_store_n(at, static_cast<uint32_t>(word->value), __ATOMIC_SEQ_CST);
    if (!word->writes) word->value = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  }
}

CUresult Guarded(Word* word) {
  Fault fault;
  return RunGuarded(&Access, word, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// Also ends when the context fails or is destroyed, because then nothing of it runs any more.
CUresult WaitUntil(const Context& context, Word word, unsigned flags) {
  const uint64_t want = word.value;
  for (int round = 0;; ++round) {
    const CUresult read = Guarded(&word);
    if (read != CUDA_SUCCESS) return read;
    const bool holds =
        word.wide ? Holds<uint64_t>(word.value, want, flags)
                  : Holds(static_cast<uint32_t>(word.value), static_cast<uint32_t>(want), flags);
    if (holds || context.cancelled() || context.Status() != CUDA_SUCCESS) return CUDA_SUCCESS;
    if (round < kSpins) {
      std::this_thread::yield();
    } else {
      const timespec pause{0, kPollNs};
      nanosleep(&pause, nullptr);
    }
  }
}

CUresult CheckWord(CUdeviceptr address, uint64_t bytes) {
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const PointerKind kind = KindOf(address, bytes);
  return kind == PointerKind::kDevice || kind == PointerKind::kPinned ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult PushWait(CUstream operand, Word word, unsigned flags) {
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > kWaitFlags) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = CheckWord(word.address, word.wide ? 8 : 4);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [context = stream->context(), word, flags] {
    return WaitUntil(*context, word, flags);
  };
  return stream->Push(std::move(command));
}

CUresult PushWrite(CUstream operand, Word word, unsigned flags) {
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = CheckWord(word.address, word.wide ? 8 : 4);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [word]() mutable { return Guarded(&word); };
  return stream->Push(std::move(command));
}

}  // namespace

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return PushWait(stream, {addr, value, false, false}, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return PushWait(stream, {addr, value, true, false}, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return PushWrite(stream, {addr, value, false, true}, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return PushWrite(stream, {addr, value, true, true}, flags);
}

}  // namespace rgpu::emu
