// Steps that the copy handlers share.
#pragma once

#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

class Executor;
struct Command;

// Asynchronous copies between a packed portion in staging memory and rows of device memory.
CUresult CopyIn(const Driver& driver, const Portion& portion, uint64_t pitch, const uint8_t* from,
                CUstream stream);
CUresult CopyOut(const Driver& driver, const Portion& portion, uint64_t pitch, uint8_t* to,
                 CUstream stream);

// CUDA_ERROR_INVALID_VALUE unless the rows lie in memory of the session; `*total`: bytes packed.
CUresult CheckRows(Executor& executor, const Rows& rows, uint64_t* total);

// The client waits for the bytes of this command, or to be asked for them; nothing comes but the
// error.
void FailDelivery(Executor& executor, const Command& command, CUresult result);

}  // namespace rgpu::exec
