"""The checks of a GPU node, in the order in which they run."""

from __future__ import annotations

from rgpu_common.doctor.findings import Check
from rgpu_common.doctor.versions import INSTALL_AGAIN, versions
from rgpu_common.installing import install_words
from rgpu_server.doctor.clock import clock
from rgpu_server.doctor.machine import driver, libraries, packages, sandbox
from rgpu_server.doctor.served import limits, ports, quota, token

CHECKS = (
    Check("versions", versions, INSTALL_AGAIN),
    Check("versions", packages, install_words("server")),
    Check("driver", driver, "install NVIDIA's driver, or serve --device emulated"),
    Check(
        "libraries", libraries, "correct the configuration file; `rgpu help server` has its keys"
    ),
    Check("port", ports, "name another address with --listen"),
    Check("clock", clock, "timedatectl set-ntp true"),
    Check("token", token, "`rgpu token new TENANT` makes an access token and its file"),
    Check("quota", quota, "correct the configuration file; `rgpu help server` has its keys"),
    Check("limits", limits, "name another state folder with --state-dir"),
    Check("sandbox", sandbox, "`rgpu help security` says what each measure needs"),
)
