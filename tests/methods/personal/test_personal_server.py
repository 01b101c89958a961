"""The server of clients that keep their models: what is kept, what is tested, and work beside the steps."""

from pathlib import Path
from typing import Any

import pytest

from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.personal.personal_models import floating_tensors
from fedscale_ext.methods.personal.personal_server import PersonalModelsAggregator
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.tasks.client_tensors import ClientState
from methods.harness import server

TYPES = ["single_exit_mlp", "cnn_small"]
METHODS = ["local", "fedmd", "dsfl", "fedgems", "fedproto", "lgfedavg", "fd", "fml"]


def local_training() -> Any:
    """The server of local training: nothing beside the base. Six clients, three of each type."""
    return server(method_class("local"), "local", types=TYPES, ranges=["1-3", "4-6"])


def test_a_client_keeps_its_types_tensors_and_is_tested_on_them(tmp_path: Path) -> None:
    aggregator = local_training()
    aggregator.log_dir = tmp_path
    (client_models,) = aggregator.client_tensors()
    assert isinstance(client_models, ClientState)
    for key in TYPES:
        expected = floating_tensors(aggregator.pool[key].state)
        assert {name: tensor.shape for name, tensor in client_models.template(key).items()} == {
            name: tensor.shape for name, tensor in expected.items()
        }
    plan = aggregator.evaluation_plan()
    assert plan.serve == [f"{TYPES[0]}@own"] * 3 + [f"{TYPES[1]}@own"] * 3 and not plan.named


def test_work_beside_the_steps_counts_per_sample_of_the_steps() -> None:
    aggregator = local_training()
    seen = aggregator.task.step_sizes(5, {"local_epochs": 2}).sum()
    assert seen == 100  # 2 epochs of 50 samples
    item = aggregator.personal_item(5, {"a": 1}, {"local_epochs": 2}, trained=25, passed=50.0, bytes=8, upload=3)
    assert (item.client, item.model, item.objective) == (5, TYPES[1], {"a": 1})
    assert (item.compute_fraction, item.forward_fraction) == (1.25, 0.5)
    assert (aggregator.download_bytes(item), aggregator.upload_bytes(item)) == (8, 3)
    plain = aggregator.personal_item(2, {}, {}, trained=0.0, passed=0.0, bytes=8)
    assert (plain.model, plain.compute_fraction, plain.forward_fraction) == (TYPES[0], 1.0, 0.0)
    assert aggregator.upload_bytes(plain) == 8


@pytest.mark.parametrize("method", METHODS)
def test_options_that_read_a_change_of_the_sent_model_are_refused(method: str) -> None:
    cls = method_class(method)
    assert issubclass(cls, PersonalModelsAggregator) and not cls.exchanges_models
    assert cls.needs_states == (method == "fml")  # its shared model is averaged
    config = make_config({}, {"method": method, "max_update_norm": 3.0})
    with pytest.raises(UserError, match=f"method {method} trains models that its clients keep; remove max_update_norm"):
        check_local_training(config, cls)
