"""What the tests share."""

import pytest

import elinvar


@pytest.fixture(scope="session")
def cpu():
    return elinvar.Executor("cpu", threads=2)


@pytest.fixture(scope="session")
def simulator():
    try:
        return elinvar.Executor("metal-sim")
    except elinvar.DeviceError as error:
        pytest.skip(str(error))
