// The commands of a copy between host and device: how its bytes travel.
#pragma once

#include "rgpu_client/shim/calls/copies.h"

namespace rgpu::shim {

// Sends the bytes with the commands.
CUresult HostToDevice(const Here& here, const Copy& copy);
// Posts a copy whose bytes the worker asks for when the stream reaches it.
CUresult HostToDevicePulled(const Here& here, const Copy& copy,
                            std::shared_ptr<const void> keep = nullptr);
// The same, and then a wait until the copy is complete.
CUresult HostToDevicePulledNow(const Here& here, const Copy& copy);
// Posts a copy whose bytes the worker delivers later.
CUresult DeviceToHostLater(const Here& here, const Copy& copy,
                           std::shared_ptr<const void> keep = nullptr);
// Waits for the bytes.
CUresult DeviceToHost(const Here& here, const Copy& copy);
CUresult DeviceToDevice(const Here& here, const Copy& copy);

// The fields that rgpuCopyBoxWithin and rgpuCopyBoxPeer have in common.
template <typename Request>
Request BoxWithin(const Here& here, const Copy& copy) {
  const auto linear = [](const Side& side, uint64_t value) { return side.array == 0 ? value : 0; };
  Request request;
  request.dst_array = copy.to.array;
  request.dst = linear(copy.to, copy.to.address);
  request.dst_pitch = linear(copy.to, copy.to.pitch);
  request.dst_rows = linear(copy.to, copy.to.rows);
  request.dst_x = copy.to.x;
  request.dst_y = copy.to.y;
  request.dst_z = copy.to.z;
  request.src_array = copy.from.array;
  request.src = linear(copy.from, copy.from.address);
  request.src_pitch = linear(copy.from, copy.from.pitch);
  request.src_rows = linear(copy.from, copy.from.rows);
  request.src_x = copy.from.x;
  request.src_y = copy.from.y;
  request.src_z = copy.from.z;
  request.width = copy.width;
  request.height = copy.height;
  request.depth = copy.depth;
  request.stream = here.stream->wire;
  return request;
}

}  // namespace rgpu::shim
