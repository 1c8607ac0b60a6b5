"""Everything about work on the device runs in normal and in hostile timing."""

import pytest

TIMED = ("test_copies", "test_streams", "test_memory", "test_modules")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in TIMED:
        metafunc.fixturenames.append("timing")
        metafunc.parametrize("timing", ["normal", "hostile:1"], indirect=True)


@pytest.fixture
def timing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the emulated device of the test's worker behaves."""
    value: str = request.param
    monkeypatch.setenv("RGPU_EMU_TIMING", value)
    return value
