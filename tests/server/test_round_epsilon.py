"""An epsilon for each round alone, as papers without an accountant name it."""

import math

import pytest

from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError


def test_it_sets_the_noise_of_the_gaussian_mechanism() -> None:
    job = make_config({}, {"dp_round_epsilon": 0.5}).job
    assert job.dp_noise_multiplier == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 0.5)
    # command lines, as an aggregator gets them, have words
    assert make_config({}, {"dp_round_epsilon": "0.5", "dp_delta": "1e-5"}).job == job
    larger = make_config({}, {"dp_round_epsilon": 0.5, "dp_delta": 1e-3}).job
    assert larger.dp_noise_multiplier == pytest.approx(math.sqrt(2 * math.log(1250)) / 0.5)
    assert make_config({}, {}).job.dp_noise_multiplier is None


@pytest.mark.parametrize(("keys", "sentence"), [
    ({"dp_round_epsilon": 0.5, "dp_noise_multiplier": 1.0},
     "key 'dp_round_epsilon' is 0.5; it sets dp_noise_multiplier, which is given too"),
    ({"dp_round_epsilon": 2.0}, "less than or equal to 1"),
    ({"dp_round_epsilon": 0}, "greater than 0"),
    ({"dp_round_epsilon": 0.5, "dp_delta": 2}, "dp_delta"),
    ({"dp_round_epsilon": "x"}, "dp_round_epsilon"),
])  # fmt: skip
def test_what_it_cannot_be_is_told(keys: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make_config({}, keys)
