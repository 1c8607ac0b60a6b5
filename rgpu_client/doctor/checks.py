"""The checks of a client, in the order in which they run."""

from __future__ import annotations

from rgpu_client.doctor.here import CORRECT_VARIABLE, driver, libraries, token, variables
from rgpu_client.doctor.manager import manager
from rgpu_client.doctor.server import server
from rgpu_common.doctor.findings import Check
from rgpu_common.doctor.versions import INSTALL_AGAIN, versions

CHECKS = (
    Check("versions", versions, INSTALL_AGAIN),
    Check("variables", variables, CORRECT_VARIABLE),
    Check("driver", driver, INSTALL_AGAIN),
    Check("libraries", libraries, "correct RGPU_SERVER"),
    Check("token", token, "name the file that `rgpu token new TENANT --file FILE` made"),
    Check("port", server, "`rgpu help transports` says what each address needs"),
    Check("manager", manager, "start `rgpu manager`, or correct RGPU_MANAGER"),
)
