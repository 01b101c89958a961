"""What holds for jobs of mymethod, and what it is about."""

from typing import Any

import pytest

from fedscale_ext.method import UserError


def test_without_momentum_and_smoothing_it_is_fedavg(job: Any, usual: Any) -> None:
    plain = job("plain", method="fedavg")["loss"]["test"]
    own = job("own", **{"mymethod.momentum": 0, "mymethod.smoothing": 0})["loss"]["test"]
    assert own == pytest.approx(plain, rel=1e-4)
    assert usual["loss"]["test"] != pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize("key", ["momentum", "smoothing"])
def test_a_bad_hyperparameter_is_one_sentence(job: Any, key: str) -> None:
    with pytest.raises(UserError, match=f"mymethod.{key} is -1"):
        job("bad", **{f"mymethod.{key}": -1})
