"""The names that all parts on Kubernetes share."""

from __future__ import annotations

import re

from rgpu_common import clusters

GROUP = clusters.KUBERNETES_GROUP
# The name of our DRA driver, and of its DeviceClass.
DRIVER = GROUP
VERSION = "v1alpha1"
# What keeps a pod from being scheduled before its claims are allocated.
GATE = f"{GROUP}/placement"
# A pod with this label, of the value `managed`, is gated by the admission policy.
PLACEMENT_LABEL, MANAGED = f"{GROUP}/placement", "managed"
# Pods of one gang get cards together: the gang's name, and its size.
GANG_LABEL, GANG_SIZE_LABEL = f"{GROUP}/gang", f"{GROUP}/gang-size"
# Labels of nodes.
RACK_LABEL = f"{GROUP}/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"
HOST_LABEL = "kubernetes.io/hostname"
# Conditions of an allocated device, for kube-scheduler's own allocations.
LEASED, REFUSED = f"{GROUP}/leased", f"{GROUP}/refused"
# The condition of a device whose claim has had its lease, and has it no more. It binds nothing.
LOST = f"{GROUP}/lost"
# Annotation of a claim: it is a reservation, and holds its cards without a pod until that time.
RESERVE_UNTIL = f"{GROUP}/reserve-until"
# The resource that such a claim is reserved for, beside pods.
RESERVATIONS = "reservations"
# Annotations of a pod: what RGPU_SERVER, RGPU_LEASE and RGPU_DEVICE are for its program.
SERVER, LEASE, DEVICE = f"{GROUP}/server", f"{GROUP}/lease", f"{GROUP}/device"
# Annotation of a pod: the authority that signs its server's certificate, as certificates in PEM.
AUTHORITY = f"{GROUP}/authority"
# The name in the certificates of all GPU nodes, whose addresses nobody knows when they are made.
SERVER_NAME = "rgpu-gpu-node"
# Annotation of a pod: the agent of a GPU node may write those four. It is written where a pod is
# let go without a manager, which would have written them itself.
AGENT_TELLS = f"{GROUP}/agent-tells"
# Taints of devices.
DRAIN_TAINT = f"{GROUP}/drain"
UNHEALTHY_TAINT = f"{GROUP}/unhealthy"
NETWORK_TAINT = f"{GROUP}/network"
# The card's server had no room for a claim although the slice says so. It goes after a while.
FULL_TAINT = f"{GROUP}/full"
# A label of a ResourceSlice: the pool that it belongs to.
POOL_LABEL = f"{GROUP}/pool"
# The finalizer of an allocated claim, which belongs to Kubernetes.
FINALIZER = "resource.kubernetes.io/delete-protection"
# Who signs ServiceAccount tokens for us as an audience.
AUDIENCE = GROUP
# The Lease by which the managers choose a leader.
MANAGER_LEASE = "rgpu-manager"
# Where a list or a watch is of all namespaces.
ALL_NAMESPACES = "*"
# Attributes of a card in a ResourceSlice, without the group. `agent`: the address of the node's
# `rgpu agent-node`, for credentials.
ATTRIBUTES = (
    "kind", "model", "uuid", "ordinal", "server", "agent", "rack", "zone", "pool", "numa",
    "mig", "nic",
)  # fmt: skip
CARD, NIC = "card", "nic"
# Memory of a card is counted in such steps.
MEMORY_STEP = 256 << 20
CORE, MEMORY, BANDWIDTH = "core", "memory", "bandwidth"
_CARD_DEVICE = re.compile(r"gpu-(0|[1-9][0-9]{0,5})")
AGENT_ATTEMPT = clusters.AGENT_ATTEMPT
# The ids of requests that `rgpu device-plugin` makes begin so. They belong to no claim.
UNIT_REQUEST = "unit-"


def card_device(ordinal: int) -> str:
    """Returns the name of a card in its node's ResourceSlice."""
    return f"gpu-{ordinal}"


def ordinal_of(device: str) -> int:
    """Returns the number of a card by its name in the slice; -1: it is no card."""
    found = _CARD_DEVICE.fullmatch(device)
    return int(found[1]) if found is not None else -1
