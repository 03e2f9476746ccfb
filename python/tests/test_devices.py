import elinvar


def test_the_cpu_is_listed_and_available():
    found = {device.backend: device for device in elinvar.devices()}
    assert found["cpu"].available and found["cpu"].name
    assert not found["cuda"].available or found["cuda"].name
