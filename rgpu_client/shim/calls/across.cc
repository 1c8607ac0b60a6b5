#include "rgpu_client/shim/calls/across.h"

#include <algorithm>
#include <array>

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/copy_parts.h"
#include "rgpu_client/shim/calls/copy_sends.h"
#include "rgpu_client/shim/calls/side_streams.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/trace.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {
namespace {

// A long copy has about so many pieces, and two of them are on their way at once.
constexpr uint64_t kPieces = 64;
constexpr uint64_t kLeastPiece = 4U << 20;
constexpr uint64_t kMostPiece = 32U << 20;
constexpr size_t kSlots = 2;

Session* SessionOfSide(const Side& side) {
  if (!side.device) return nullptr;
  return side.array != 0 ? SessionOf(side.array) : SessionOfAddress(side.address);
}

// The surroundings of a side: its session, and the context of its memory or another one there. A
// side in host memory has no session.
CUresult EndOf(const Side& side, Here* end) {
  Session* const session = SessionOfSide(side);
  *end = {session, &ThisThread(), nullptr, nullptr};
  if (session == nullptr) return CUDA_SUCCESS;
  HandleTable& handles = session->handles();
  if (side.array != 0) {
    const Array* array = handles.Find<Array>(side.array);
    if (array != nullptr) end->context = handles.Find<Context>(array->context);
  } else if (const auto range = session->addresses().Find(side.address)) {
    end->context = handles.Find<Context>(range->context);
    if (end->context == nullptr) *end = CodeOnDevice(range->device);
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (end->context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  end->stream = &end->context->legacy;
  return end->channel().sticky();
}

struct Ends {
  Here to;
  Here from;

  bool two() const {
    return to.session != nullptr && from.session != nullptr && to.session != from.session;
  }
  // The end of a copy that one session can make.
  const Here& one() const { return to.session != nullptr ? to : from; }
};

CUresult FindEnds(const Copy& copy, Ends* ends) {
  CUresult status = EndOf(copy.to, &ends->to);
  if (status == CUDA_SUCCESS) status = EndOf(copy.from, &ends->from);
  if (status != CUDA_SUCCESS || !ends->two()) return status;
  status = CheckSide(ends->to, copy.to, copy);
  return status == CUDA_SUCCESS ? CheckSide(ends->from, copy.from, copy) : status;
}

// A node of a graph is of the graph's device.
CUresult CheckNoCapture(const Here& here, const Copy& copy) {
  if (!Graphs().captures.active()) return CUDA_SUCCESS;
  if (copy.synchronous) return CheckSynchronousWork(here);
  CUresult over = CUDA_SUCCESS;
  if (!graph::Captured(Graphs(), SiteOf(here), &over)) return over;
  base::LogSentence("a copy between devices cannot be captured");
  return over == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : over;
}

// Memory for the packed bytes of one piece.
struct Staging {
  explicit Staging(uint64_t bytes) : memory(new uint8_t[bytes]) {}  // not initialised
  Side side(const Part& part) const {
    return {reinterpret_cast<uint64_t>(memory.get()), part.width, false, part.rows};
  }

  const std::unique_ptr<uint8_t[]> memory;
};

// The part of one side of the copy; the other side is the staging memory.
Copy HalfOf(const Copy& copy, const Part& part, const Side& to, const Side& from) {
  return Flattened(
      {to, from, part.width, part.rows, copy.synchronous, SourceOrder::kStream, part.slices});
}

Side AtPart(const Side& side, const Part& part) {
  return side.At(part.slice, part.row, part.column);
}

uint64_t PieceBytes(const Copy& copy) {
  return std::clamp(copy.bytes() / kPieces, kLeastPiece, kMostPiece);
}

// Makes the copy while the caller waits.
CUresult RunSerial(const Here& here, const Copy& copy, const Ends& ends) {
  for (const Here* end : {&here, &ends.to, &ends.from}) {
    if (end->session == nullptr) continue;
    if (const CUresult status = SynchronizeContext(*end); status != CUDA_SUCCESS) return status;
  }
  if (!ends.two()) return RunCopy(ends.one(), copy);
  const uint64_t limit = PieceBytes(copy);
  const Staging staging(std::min(limit, copy.bytes()));
  return ForEachPart(copy, limit, [&](const Part& part) {
    const Copy out = HalfOf(copy, part, staging.side(part), AtPart(copy.from, part));
    const Copy in = HalfOf(copy, part, AtPart(copy.to, part), staging.side(part));
    const CUresult status = RunCopy(ends.from, out);
    return status == CUDA_SUCCESS ? RunCopy(ends.to, in) : status;
  });
}

// The stream of one session in which its part of an ordered copy runs: here.stream itself, or a
// side stream that comes behind it and that it follows afterwards.
class Lane {
 public:
  CUresult Open(const Here& caller, const Here& end) {
    caller_ = &caller;
    if (end.session == caller.session) {
      here = caller;
      return CUDA_SUCCESS;
    }
    done_ = std::make_shared<OrderPoint>();
    CUresult status = SideStreamHere(*end.session, *end.context, done_, &here);
    if (status == CUDA_SUCCESS) status = Follow(caller, here);
    if (status != CUDA_SUCCESS) done_->Reach();
    return status;
  }
  CUresult Close() const {
    if (done_ == nullptr) return CUDA_SUCCESS;
    const CUresult status = PostPoint(here, done_);
    return status == CUDA_SUCCESS ? PostWait(*caller_, done_) : status;
  }

  Here here;

 private:
  const Here* caller_ = nullptr;
  PointRef done_;
};

// Posts the copy of one piece: out into the staging memory, and from there in.
CUresult PostPiece(const Here& from, const Here& to, const Copy& copy, const Part& part,
                   const std::shared_ptr<Staging>& staging) {
  const Copy out = HalfOf(copy, part, staging->side(part), AtPart(copy.from, part));
  const Copy in = HalfOf(copy, part, AtPart(copy.to, part), staging->side(part));
  CUresult status = DeviceToHostLater(from, out, staging);
  if (status == CUDA_SUCCESS) status = Follow(from, to);
  return status == CUDA_SUCCESS ? HostToDevicePulled(to, in, staging) : status;
}

CUresult PostPieces(const Here& from, const Here& to, const Copy& copy) {
  const uint64_t limit = PieceBytes(copy);
  std::vector<Part> parts;
  ForEachPart(copy, limit, [&](const Part& part) {
    parts.push_back(part);
    return CUDA_SUCCESS;
  });
  std::array<std::shared_ptr<Staging>, kSlots> slots;
  std::array<PointRef, kSlots> free;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t slot = i % kSlots;
    if (slots[slot] == nullptr) {
      slots[slot] = std::make_shared<Staging>(std::min(limit, copy.bytes()));
    } else if (const CUresult bad = PostWait(from, free[slot]); bad != CUDA_SUCCESS) {
      return bad;
    }
    CUresult status = PostPiece(from, to, copy, parts[i], slots[slot]);
    if (status == CUDA_SUCCESS && i + kSlots < parts.size()) {
      free[slot] = std::make_shared<OrderPoint>();
      status = PostPoint(to, free[slot]);
    }
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

// Posts the copy in the order of here.stream.
CUresult RunOrdered(const Here& here, const Copy& copy, const Ends& ends) {
  if (!ends.two()) {
    Lane lane;
    if (const CUresult status = lane.Open(here, ends.one()); status != CUDA_SUCCESS) return status;
    const CUresult status = RunCopy(lane.here, copy);
    const CUresult closed = lane.Close();
    return status == CUDA_SUCCESS ? closed : status;
  }
  Lane from;
  Lane to;
  CUresult status = from.Open(here, ends.from);
  if (status != CUDA_SUCCESS) return status;
  status = to.Open(here, ends.to);
  if (status == CUDA_SUCCESS) {
    UseDeviceMemory(from.here, copy.from, copy, false);
    UseDeviceMemory(to.here, copy.to, copy, true);
    TraceBytes(copy.bytes());
    status = PostPieces(from.here, to.here, copy);
    const CUresult closed = to.Close();
    if (status == CUDA_SUCCESS) status = closed;
  }
  const CUresult closed = from.Close();
  return status == CUDA_SUCCESS ? closed : status;
}

}  // namespace

bool IsAcross(const Here& here, const Copy& copy) {
  if (LiveSessions().size() < 2) return false;
  const auto other = [&](const Side& side) {
    Session* const session = SessionOfSide(side);
    return session != nullptr && session != here.session;
  };
  return other(copy.to) || other(copy.from);
}

CUresult RunAcross(const Here& here, const Copy& copy) {
  if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
  if (copy.empty()) return CUDA_SUCCESS;
  if (const CUresult bad = CheckNoCapture(here, copy); bad != CUDA_SUCCESS) return bad;
  Ends ends;
  if (const CUresult bad = FindEnds(copy, &ends); bad != CUDA_SUCCESS) return bad;
  return copy.synchronous ? RunSerial(here, copy, ends) : RunOrdered(here, copy, ends);
}

}  // namespace rgpu::shim
