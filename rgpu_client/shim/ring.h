// The client's part in setting up a shared-memory ring.
#pragma once

#include "gen/handshake.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"

namespace rgpu::shim {

// Called after WELCOME: switches to the ring that came with it, or stays on the socket and prints
// the reason. False: the connection is lost.
bool AgreeOnRing(transport::ShmConnection& connection, const transport::FrameReader& reader,
                 const wire::Welcome& welcome);

}  // namespace rgpu::shim
