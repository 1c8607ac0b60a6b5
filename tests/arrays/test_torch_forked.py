"""A child that was forked after the session was opened, as a worker of a `DataLoader`, seeds, and
gets a sentence where it uses the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.needs import import_needed

torch = import_needed("torch", "msgpack")

from helpers.torch_session import issuer, sent  # noqa: E402

from rgpu_client.arrays.issuer import SessionLostError  # noqa: E402

if TYPE_CHECKING:
    from rgpu_client.arrays.issuer import Issuer

__all__ = ["issuer"]


class Drawn(torch.utils.data.Dataset):  # type: ignore[misc]
    """Elements that a worker draws, and whether it believes to have the session."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[float, bool, bool]:
        torch.rgpu.manual_seed_all(index)
        known = torch.rgpu.is_initialized(), torch.rgpu._is_in_bad_fork()
        return (torch.rand(1).item(), *known)


def test_the_workers_of_a_loader_seed_and_draw_as_without_a_session(issuer: Issuer) -> None:
    torch.ones(2, device="rgpu").sum().item()
    loader = torch.utils.data.DataLoader(
        Drawn(), num_workers=2, timeout=60, generator=torch.Generator().manual_seed(1),
        multiprocessing_context="fork",
    )  # fmt: skip
    drawn = [[one.item() for one in batch] for batch in loader]
    assert len({number for number, _, _ in drawn}) == 4
    assert [known for _, *known in drawn] == [[False, True]] * 4
    assert torch.rgpu.is_initialized()
    assert not torch.rgpu._is_in_bad_fork()
    assert torch.ones(2, device="rgpu").sum().item() == 2


class Held(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples that lie on the device, in the session of the parent."""

    def __init__(self) -> None:
        self.rows = sent(4, 3)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> object:
        return self.rows[index]


def test_samples_on_the_device_are_refused_in_a_forked_worker(issuer: Issuer) -> None:
    held = Held()
    loader = torch.utils.data.DataLoader(
        held, batch_size=2, num_workers=1, timeout=60, multiprocessing_context="fork"
    )
    with pytest.raises(SessionLostError, match="start processes with the method 'spawn'"):
        list(loader)
    assert held.rows.sum().item() == 66
