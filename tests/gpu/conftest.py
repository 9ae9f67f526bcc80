import pytest

from runners.device import open_device
from runners.errors import DeviceError


def pytest_addoption(parser):
    parser.addoption(
        "--lock-clock", action="store_true", help="Also lock the GPU's clock, and give it back (needs root)."
    )


@pytest.fixture
def device(tmp_path):
    """The board, with a state folder of its own; what is missing is said."""
    try:
        return open_device("cuda", state_dir=tmp_path / "state")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def events(device):
    """CuPy's events in this process. From here on it is a process on the board, so these tests come last."""
    from runners.device.cuda.cupy_events import CupyEvents

    return CupyEvents()
