"""What a pod runs: counts with a kernel, asks for more memory than it has, and stays.

It runs in an image without the tests: `driver.py` and `add_one.py` lie beside it.
"""

import ctypes
import json
import os
import signal

from add_one import PTX  # type: ignore[import-not-found]
from driver import Driver  # type: ignore[import-not-found]

BLOCKS, THREADS = 4, 64

# The first process of a container is ended only by signals that it waits for.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
cuda = Driver()
cuda.open()
devices = ctypes.c_int()
cuda("cuDeviceGetCount", ctypes.byref(devices))
address = cuda.alloc(4)
cuda.upload(address, bytes(4))
cuda.launch(cuda.function(cuda.load(PTX), "add_one"), BLOCKS, THREADS, address)
cuda.synchronize()
counted = int.from_bytes(cuda.download(address, 4), "little")
too_much = ctypes.c_uint64()
seen = {
    "user": os.getuid(),
    "transport": os.environ["RGPU_SERVER"].partition(":")[0],
    "token": os.environ["RGPU_TOKEN_FILE"],
    "devices": devices.value,
    "mebibytes": cuda.memory()[1] >> 20,
    "right": counted == BLOCKS * THREADS,
    "3 GiB more": cuda.result("cuMemAlloc_v2", ctypes.byref(too_much), ctypes.c_size_t(3 << 30)),
}
print(json.dumps(seen), flush=True)
signal.sigwait([signal.SIGTERM])
