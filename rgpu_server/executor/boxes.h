// Copies of boxes: slices of rows, in linear memory or in arrays.
#pragma once

#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

// Puts rows into an array, if the array holds them.
CUresult PlaceIn(const Array& array, Rows* rows);

// Does so with the array of this number. 0: the rows lie in linear memory, which CheckRows checks.
CUresult FindArray(Executor& executor, uint64_t id, Rows* rows);

// The rows of a command with one side.
template <typename Request>
CUresult BoxOf(Executor& executor, const Request& request, Rows* rows) {
  *rows = {request.at,
           request.pitch,
           request.width,
           request.height,
           request.depth,
           request.rows,
           {nullptr, request.x, request.y, request.z}};
  return FindArray(executor, request.array, rows);
}

// The sides of a command with two.
template <typename Request>
CUresult BoxesOf(Executor& executor, const Request& request, Rows* to, Rows* from) {
  *to = {request.dst,
         request.dst_pitch,
         request.width,
         request.height,
         request.depth,
         request.dst_rows,
         {nullptr, request.dst_x, request.dst_y, request.dst_z}};
  *from = {request.src,
           request.src_pitch,
           request.width,
           request.height,
           request.depth,
           request.src_rows,
           {nullptr, request.src_x, request.src_y, request.src_z}};
  const CUresult result = FindArray(executor, request.dst_array, to);
  return result == CUDA_SUCCESS ? FindArray(executor, request.src_array, from) : result;
}

// The driver's parameters of a copy between packed bytes in staging memory and a portion of `rows`.
CUDA_MEMCPY3D ParamsIn(const Rows& rows, const Portion& portion, const uint8_t* from);
CUDA_MEMCPY3D ParamsOut(const Rows& rows, const Portion& portion, uint8_t* to);

// Sets one side of the driver's parameters. `Params` is CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
template <typename Params>
void SetSource(const Rows& rows, Params* params) {
  params->srcMemoryType = rows.linear() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY;
  params->srcDevice = rows.address;
  params->srcPitch = rows.pitch;
  params->srcHeight = rows.rows;
  params->srcArray = rows.place.array;
  params->srcXInBytes = rows.place.x;
  params->srcY = rows.place.y;
  params->srcZ = rows.place.z;
}
template <typename Params>
void SetTarget(const Rows& rows, Params* params) {
  params->dstMemoryType = rows.linear() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY;
  params->dstDevice = rows.address;
  params->dstPitch = rows.pitch;
  params->dstHeight = rows.rows;
  params->dstArray = rows.place.array;
  params->dstXInBytes = rows.place.x;
  params->dstY = rows.place.y;
  params->dstZ = rows.place.z;
}

}  // namespace rgpu::exec
