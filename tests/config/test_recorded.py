"""The configuration of a job that has run."""

import json

import pytest

from fedscale_ext.config.job_config import make_config, with_values
from fedscale_ext.config.recorded import recorded_config


@pytest.mark.parametrize(
    "keys",
    [
        {"dp_round_epsilon": 0.5},  # it sets the noise: header.json has both, and a configuration has one
        {"dp_noise_multiplier": 2.0},
        {"local_steps": 3, "method": "heterofl"},
        {"method": "heterofl", "heterofl.clip_norm": None},
        {"sample_mode": "pyramidfl"},
        {"sample_mode": "pyramidfl", "exploration_decay": 0.98, "round_threshold": 30.0},  # defaults of other modes
    ],
)
def test_a_recorded_configuration_is_read_again_and_changed(keys: dict[str, object]) -> None:
    config = make_config({}, {**keys, "use_cuda": False})
    recorded = json.loads(json.dumps(config.echo()))
    again = with_values(recorded_config(recorded), rounds=7)
    assert json.loads(json.dumps(again.echo())) == {**recorded, "rounds": 7}
    assert again.method_params() == config.method_params()


@pytest.mark.parametrize(
    "keys", [{"stop_gain": None, "stop_patience": 5}, {"dp_noise_multiplier": None, "dp_clip_norm": 2}]
)
def test_a_key_that_was_taken_away_is_taken_away_again(keys: dict[str, object]) -> None:
    """Otherwise the keys that ask for it are refused."""
    again = recorded_config(make_config({}, keys).echo())
    assert all(again.takes_away(key) for key, value in keys.items() if value is None)
    assert not recorded_config(make_config({}, {}).echo()).takes_away("stop_gain")
