"""There is one device: another number is refused, wherever a program gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from helpers.needs import import_needed

torch = import_needed("torch", "msgpack")

from helpers.torch_session import issuer  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_client.arrays.issuer import Issuer

__all__ = ["issuer"]
USES: dict[str, Callable[[Any], Any]] = {
    "ones": lambda device: torch.ones(2, device=device),
    "empty": lambda device: torch.empty(2, device=device),
    "empty_strided": lambda device: torch.empty_strided((2,), (1,), device=device),
    "tensor": lambda device: torch.tensor([1], device=device),
    "randn": lambda device: torch.randn(2, device=device),
    "zeros_like": lambda device: torch.zeros_like(torch.ones(2), device=device),
    "to": lambda device: torch.ones(2).to(device),
    "from the device": lambda device: torch.ones(2, device="rgpu").to(device),
    "module": lambda device: torch.nn.Linear(2, 2).to(device),
    "set_device": lambda device: torch.rgpu.set_device(device),
}


@pytest.mark.parametrize("use", USES)
def test_another_number_is_refused(issuer: Issuer, use: str) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal: rgpu:1; there is one device"):
        USES[use]("rgpu:1")


@pytest.mark.parametrize("use", USES)
def test_the_number_of_the_device_is_taken(issuer: Issuer, use: str) -> None:
    for device in ("rgpu:0", torch.device("rgpu")):
        made = USES[use](device)
        parts = made.parameters() if isinstance(made, torch.nn.Module) else (made,)
        assert use == "set_device" or {str(part.device) for part in parts} == {"rgpu:0"}
