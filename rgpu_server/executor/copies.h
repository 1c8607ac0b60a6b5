// Functions that the copy handlers share.
#pragma once

#include <memory>

#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

class Executor;
struct Command;
struct Delivery;
struct Target;

// Asynchronous copies between packed bytes in staging memory and rows of device memory.
// `rows` are the rows of which the portion is a part.
CUresult CopyIn(const Driver& driver, const Rows& rows, const Portion& portion, const uint8_t* from,
                CUstream stream);
CUresult CopyOut(const Driver& driver, const Rows& rows, const Portion& portion, uint8_t* to,
                 CUstream stream);

// The handlers of copies between host and device, for any rows. The command's stream is `target`.
CUresult CopyFromBulk(Executor& executor, const Command& command, const Target& target,
                      const Rows& rows, bool synchronous);
// Sets `*asks` if the client will be asked for the bytes.
CUresult PullIn(Executor& executor, const Command& command, const Target& target, const Rows& rows,
                bool* asks);
CUresult CopyToClient(Executor& executor, const Command& command, const Target& target,
                      const Rows& rows);
CUresult Deliver(Executor& executor, const Command& command, const Target& target,
                 const Rows& rows);

// Returns CUDA_ERROR_INVALID_VALUE unless the rows lie in memory that the session has allocated.
// Sets `*total` to the number of packed bytes.
// Rows in an array were checked when the array was found (boxes.h).
CUresult CheckRows(Executor& executor, const Rows& rows, uint64_t* total);

// Puts a delivery behind the work that was issued to the target's stream.
void AddDelivery(Executor& executor, const Target& target, std::shared_ptr<Delivery> delivery);

// Sends the client an empty last delivery with the error. The client waits for the bytes of this
// command (or for a request to send them), and would wait for ever otherwise.
void FailDelivery(Executor& executor, const Command& command, CUresult result);

}  // namespace rgpu::exec
