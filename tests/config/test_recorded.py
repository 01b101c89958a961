"""The configuration of a job that has run."""

import pytest

from fedscale_ext.config.job_config import make_config, with_values
from fedscale_ext.config.recorded import recorded_config


@pytest.mark.parametrize(
    "keys", [{"dp_round_epsilon": 0.5}, {"dp_noise_multiplier": 2.0}, {"local_steps": 3, "method": "heterofl"}]
)
def test_a_recorded_configuration_is_read_again_and_changed(keys: dict[str, object]) -> None:
    """A round's epsilon sets the noise: header.json has both, and a configuration has one."""
    config = make_config({}, {**keys, "use_cuda": False})
    again = with_values(recorded_config(config.echo()), rounds=7)
    assert again.echo() == {**config.echo(), "rounds": 7}
