import numpy as np
import pytest

import elinvar


def test_the_cpu_is_listed_and_available():
    found = {device.backend: device for device in elinvar.devices()}
    assert found["cpu"].available and found["cpu"].name
    assert not found["cuda"].available or found["cuda"].name


def test_several_devices_are_one_executor():
    one, two = elinvar.Executor("cpu", precision="strict"), elinvar.Executor("cpu, cpu", precision="strict")
    assert (one.ranks, two.ranks, two.backend) == (1, 2, "cpu,cpu")
    values = np.random.default_rng(1).standard_normal((5, 64), dtype=np.float32)
    expected, found = [executor.tensor(values) @ executor.tensor(values).T for executor in (one, two)]
    assert (expected.softmax(-1).numpy() == found.softmax(-1).numpy()).all()
    assert (found.to(one).numpy() == expected.numpy()).all()
    # Each device has memory of its own: what another library writes would reach one of them.
    x = two.tensor(values)
    x.numpy()[:] = 0
    values[:] = 0
    assert (x.numpy() != 0).any()
    x += 1
    assert (x.numpy() == np.asarray(x)).all()
    with pytest.raises(ValueError, match="copy=False"):
        two.tensor(values, copy=False)
    with pytest.raises(BufferError, match=r"memory on cpu,cpu is not shared by DLPack"):
        x.__dlpack__()


@pytest.mark.parametrize(("backend", "message"), [("cpu,abacus", "device 'abacus' is not available"), ("cpu,", "device '' is not available"), ("cpu,null", "unlike devices: rank 0 is on")])
def test_what_is_no_group_is_rejected(backend, message):
    with pytest.raises((elinvar.DeviceError, ValueError), match=message):
        elinvar.Executor(backend)
    with pytest.raises(ValueError, match="threads= is for backend='cpu', not 'cpu,cpu'"):
        elinvar.Executor("cpu,cpu", threads=2)
