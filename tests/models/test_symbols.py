"""Models that read symbols take texts only, and other models take anything else."""

import json
from pathlib import Path

import pytest
from methods.harness import server

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.families.network_pair import pair_spec
from fedscale_ext.models.registry import check_symbols, reads_symbols

TEXT, PICTURE = (1, 1, 80), (1, 28, 28)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [(name, False, "symbols of a text, and this data set has pictures or other values: name one that reads these, such "
                   "as cnn_small") for name in ("rnn", "rnn_positions", "rnn_smallest")]
    + [(name, True, "pictures or other values, and this data set has symbols of a text: name one that reads these, "
                    "such as rnn_largest") for name in ("first_exit_mlp", "single_exit_cnn3")],
)  # fmt: skip
def test_a_model_is_refused_for_the_other_kind_of_samples(name: str, text: bool, sentence: str) -> None:
    assert models.named_spec(name, TEXT, 90, text=not text) == models.named_spec(name, TEXT, 90)
    with pytest.raises(UserError) as error:
        models.named_spec(name, TEXT, 90, text=text)
    assert str(error.value) == f"the model {name} reads {sentence}"


def test_spec_files_are_refused_alike(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    fields = {"form": "rnn", "stages": 1, "ops": [["gru", "lstm"], ["zero", "linear"]]}
    path.write_text(json.dumps({"family": "supernet", "fields": fields}))
    assert models.configured_spec(str(path), TEXT, 90, text=True)["form"] == "rnn"
    with pytest.raises(UserError, match=r"the model .*space\.json reads symbols of a text"):
        models.configured_spec(str(path), PICTURE, 10, text=False)


def test_networks_around_others_read_what_these_read() -> None:
    rnn, mlp = (models.named_spec(name, TEXT, 90) for name in ("rnn_smallest", "single_exit_mlp"))
    for spec, expected in ((rnn, True), (mlp, False)):
        assert reads_symbols(spec) is expected and reads_symbols(headed(spec, 8)) is expected
        assert reads_symbols(pair_spec(spec, spec)) is expected


def test_a_network_of_ones_own_may_read_either() -> None:
    spec = models.ModelSpec.make("custom_module", network="nets:Net", input_shape=TEXT, num_classes=90)
    assert reads_symbols(spec) is None
    for text in (True, False):
        check_symbols("nets:Net", spec, text)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "rnn_largest", "data_set": "femnist"}, "reads symbols of a text"),
        ({"model": "rnn_largest"}, "reads symbols of a text"),
        ({"model": "first_exit_mlp", "data_set": "shakespeare"}, "reads pictures or other values"),
    ],
)
def test_a_job_is_refused_before_its_first_round(keys: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        server(FedAvgAggregator, "fedavg", **keys)
