// The client's part in agreeing on a ring in shared memory.
#pragma once

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "rgpu_common/native/wire/welcome.h"

namespace rgpu::shim {

// After WELCOME: goes over to the ring that came with it, or stays on the socket and says once why.
// False: the connection is lost.
bool AgreeOnRing(transport::ShmConnection& connection, const transport::FrameReader& reader,
                 const wire::Welcome& welcome);

}  // namespace rgpu::shim
