"""What the tests share."""

import pytest

import elinvar

# Why the simulator cannot be used here, if it cannot.
REASON = next((device.reason for device in elinvar.devices() if device.backend == "metal-sim"), "this build has no simulator")


def pytest_collection_modifyitems(items):
    for item in items:
        if REASON and item.get_closest_marker("simulated"):
            item.add_marker(pytest.mark.skip(reason=REASON))


def pytest_configure(config):
    config.addinivalue_line("markers", "simulated: needs the simulator of Metal devices")


@pytest.fixture(scope="session")
def cpu():
    return elinvar.Executor("cpu", threads=2)


@pytest.fixture(scope="session")
def simulator():
    try:
        return elinvar.Executor("metal-sim")
    except elinvar.DeviceError as error:
        pytest.skip(str(error))
