"""Claims whose parameters are nested as deeply as a tenant can write them."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, because the limit is the process's.
READS = """
from lightkube.core.decoders import decode_list
from lightkube.resources.resource_v1 import ResourceClaim
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.api import allow_depth
from rgpu_cluster.kubernetes.wishes import wishes_of
allow_depth()
deep = '{"a":' * 5000 + "1" + "}" * 5000
claim = (
    '{"metadata":{"name":"n","namespace":"team","uid":"0e8a8d3c-8ad4-4c2f-9a8e-111111111111"},'
    '"spec":{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"rgpu.dev"}}],'
    '"config":[{"opaque":{"driver":"rgpu.dev","parameters":%s}}]}}}' % deep
)
_, _, (one, other) = decode_list(('{"metadata":{},"items":[%s,%s]}' % (claim, claim)).encode(), ResourceClaim)
try:
    wishes_of(one.to_dict(), {"rgpu.dev": {"spec": {}}})
except RequestError as error:
    print(error)
"""


def test_a_claim_of_great_depth_is_read_and_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "kind: GpuRequest" in done.stdout
