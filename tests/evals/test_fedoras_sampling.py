from argparse import Namespace

import pytest

from evals.speed import fedoras_sampling


def test_what_sampling_takes_is_measured_within_a_clients_round(capsys: pytest.CaptureFixture[str]) -> None:
    timings = fedoras_sampling.measure(Namespace(space="cnn_tiny", batch=4, steps=3, repeats=1))
    assert all(seconds > 0 for seconds in timings.values())
    assert timings["sampling"] + timings["instantiating"] < 0.2 * timings["step"]  # on steps an eighth as long as ours
    fedoras_sampling.main(["--batch", "4", "--steps", "2", "--repeats", "1"])
    assert "sampling and instantiating:" in capsys.readouterr().out
