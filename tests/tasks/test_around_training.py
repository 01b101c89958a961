"""Accuracy of each client's model before and after one more round's local training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import open_data_set
from fedscale_ext.methods.distillation.client import LogitsClient
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.report.job.tables import summary_table
from fedscale_ext.tasks.around_training import EVENT
from fedscale_ext.tasks.evaluation_figures import figures_section
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import WireError

JOB: dict[str, Any] = {
    "model": "lenet_6k", "rounds": 2, "test_around_training": True, "learning_rate": 0.05, "num_participants": 7,
}  # fmt: skip
TYPES, RANGES = ["single_exit_mlp", "lenet_6k"], ["1-4", "5-7"]


def typed(method: str, **more: Any) -> dict[str, Any]:
    return {"method": method, f"{method}.types": TYPES, f"{method}.ranges": RANGES, "public_samples": 6, **more}


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    return fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})


@pytest.mark.parametrize("mask", [False, True])
def test_a_types_model_is_tested_as_it_is_served_and_after_each_client_has_trained_it(
    job_file: Path, tiny_femnist: Path, mask: bool
) -> None:
    summary = run(job_file, "served", method="fjord", mask_test=mask, **{"fjord.p": [1.0]})
    assert summary["before_training"]["per_client"] == summary["accuracy"]["per_client"]
    log_dir = Path(summary["log_dir"])
    spec, state = load_model(next((log_dir / "models").glob("*.safetensors")))
    data = open_data_set(str(tiny_femnist), "femnist", data_map_file=None, test_split=0.2, seed=1, input_shape=None)
    expected = []
    for client in range(1, data.num_clients + 1):
        conf = client_settings(client, seed=1, round=EVENT, local_steps=2, batch_size=5, learning_rate=0.05)
        module = models.build(spec)
        module.load_state_dict(state)
        MultiModelClient(conf, NO_BENCH).train(ClientSamples(*data.tensors(data.train_rows(client))), module, conf)
        x, y = data.tensors(data.test_rows(client))
        logits = module.eval()(x)
        if mask:  # classes without training samples have logits of zero
            logits[:, np.setdiff1d(np.arange(data.num_classes), data.labels(data.train_rows(client)))] = 0
        expected.append(float((logits.argmax(1) == y).double().mean()) if len(y) else None)
    accuracies = summary["after_training"]["per_client"]
    assert accuracies == [value if value is None else pytest.approx(value) for value in expected]
    assert accuracies != summary["accuracy"]["per_client"]
    (all_types,) = [row for row in summary["results"]["types"] if row["type"] == "all"]
    for name in ("before_training", "after_training"):
        assert all_types[f"accuracy_{name}"] == pytest.approx(summary[name]["mean"])
        assert any(row == name.replace("_", " ") for row, _ in summary_table(summary))
    first, last = read_records(log_dir / "metrics.jsonl")
    assert first.after_training is None and last.before_training is not None and last.after_training is not None
    if mask:
        unmasked = last.evaluation.unmasked
        assert unmasked is not None and np.array_equal(last.before_training.unmasked, unmasked)


def test_clients_that_keep_models_are_tested_after_the_digest_and_after_their_own_samples(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = typed("fedmd", **{"fedmd.private_epochs": 1, "fedmd.pretrain_epochs": 1})
    plain = run(job_file, "plain", **keys)
    # without the digest, the model before local training is the one that the client keeps
    unheard = run(job_file, "unheard", **keys, **{"fedmd.digest_epochs": 0})
    assert unheard["before_training"]["per_client"] == unheard["accuracy"]["per_client"]
    begun: list[tuple[int, str]] = []
    begin = LogitsClient.begin

    def noted(self: Any, model: torch.nn.Module, conf: Any) -> None:
        self.load_personal_model(model, conf)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        begin(self, model, conf)
        if conf.round == EVENT:
            moved = any(not torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
            begun.append((conf.client_id, "moved" if moved else "same"))

    monkeypatch.setattr(LogitsClient, "begin", noted)
    again = run(job_file, "noted", **keys)
    for name in ("before_training", "after_training"):
        assert again[name] == plain[name]
    assert {client for client, what in begun if what == "moved"} == {
        client for client, value in enumerate(plain["accuracy"]["per_client"], 1) if value is not None
    }


@pytest.mark.parametrize(
    "keys",
    [
        typed("moss", **{"moss.epochs": 1}), typed("dsfl"), typed("fedgems"), typed("feddf", **{"feddf.steps": 2}),
        typed("fedet", **{"fedet.steps": 2}),
        {"method": "heterofl"},
        {"method": "lotteryfl", "lotteryfl.threshold": 0.0},
        *({"method": name, "model": "nasbench201_base", f"{name}.groups": [2, 2, 3]}
          for name in ("hermes", "tailorfl", "fedmask", "fedskel")),
    ],
    ids=lambda keys: keys["method"],
)  # fmt: skip
def test_every_method_with_types_tells_both_and_neither_changes_the_job(job_file: Path, keys: dict[str, Any]) -> None:
    keys = {**keys, "num_participants": 5}  # some never took part
    on, off = run(job_file, "on", **keys), run(job_file, "off", **keys, test_around_training=False)
    assert on["accuracy"] == off["accuracy"]
    tested = on["accuracy"]["tested"]
    assert on["before_training"]["tested"] == on["after_training"]["tested"] == tested
    assert off["before_training"] is None and off["after_training"] is None
    # clients of these learn from the server first, or begin with its bits
    if keys["method"] not in ("fedmd", "dsfl", "fedgems", "fedmask"):
        assert on["before_training"]["per_client"] == on["accuracy"]["per_client"]
        last = read_records(Path(on["log_dir"]) / "metrics.jsonl")[-1]
        assert last.before_training is not None and last.evaluation is not None
        mine = last.before_training.count > 0  # the losses tell whose BatchNorm statistics they had
        np.testing.assert_allclose(last.before_training.loss[mine], last.evaluation.loss[mine], rtol=1e-4)
    rows = {row["type"]: row for row in on["results"]["types"]}
    assert rows["all"]["accuracy_after_training"] == pytest.approx(on["after_training"]["mean"])


def test_clients_have_control_variates_of_a_model_that_nobody_trained(job_file: Path) -> None:
    keys = {**typed("moss", **{"moss.epochs": 1}), "rounds": 1, "num_participants": 1, "control_variates": True}
    summary = run(job_file, "job", **keys)
    assert summary["after_training"]["tested"] == summary["accuracy"]["tested"] > 1


def test_units_play_no_part(job_file: Path) -> None:
    one, again = run(job_file, "one", **typed("dsfl")), run(job_file, "again", **typed("dsfl"), unit_size=2)
    for name in ("before_training", "after_training"):
        assert again[name]["per_client"] == one[name]["per_client"]


@pytest.mark.parametrize("keys", [typed("dsfl"), typed("moss", **{"moss.epochs": 1})], ids=lambda keys: keys["method"])
def test_clients_side_by_side_are_tested_each_with_its_own_model(job_file: Path, keys: dict[str, Any]) -> None:
    keys = {**keys, "rounds": 1, "learning_rate": 0.05, "local_steps": 5}
    alone, together = run(job_file, "alone", **keys), run(job_file, "together", **keys, cohort_size=4)
    records = [read_records(Path(job["log_dir"]) / "metrics.jsonl")[-1] for job in (alone, together)]
    for name in ("before_training", "after_training"):
        one, other = (getattr(record, name).loss for record in records)
        np.testing.assert_allclose(one, other, rtol=1e-3)
    before, after = records[0].before_training, records[0].after_training
    assert before is not None and after is not None and not np.allclose(before.loss, after.loss, rtol=0.01)


def test_a_client_that_fails_is_untested_in_both(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MultiModelClient.losses

    def losses(self: Any, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = plain(self, output, labels)
        return values * float("nan") if (self.args.round, self.args.client_id) == (EVENT, 2) else values

    monkeypatch.setattr(MultiModelClient, "losses", losses)
    summary = run(job_file, "job", **typed("moss", **{"moss.epochs": 1}))
    for name in ("before_training", "after_training"):
        assert summary[name]["per_client"][1] is None
        assert summary[name]["tested"] == summary["accuracy"]["tested"] - 1


def test_a_method_without_types_refuses_it_before_the_job_begins(job_file: Path) -> None:
    with pytest.raises(
        UserError, match=r"^test_around_training is for methods whose summary has a row for each type of device, and"
    ):
        run(job_file, "refused", method="fedavg")


def test_answers_of_another_form_are_refused() -> None:
    unit = Unit(1, EVENT, {"clients": [1, 2]}, ("a",), None)
    good = figures_section(np.array([[1.0, 1.0, 0.1], [2.0, 2.0, 0.1]]))
    sizes = np.array([3, 3])
    check_answer(kinds_by_event(), unit, {"missing": []}, {"before": good, "after": good}, sizes)
    for header, sections in (
        ({"missing": []}, {"figures": good}),
        ({"missing": [3]}, {"before": good, "after": good}),
        ({"missing": []}, {"before": good, "after": figures_section(np.array([[4.0, 4.0, 0.0]] * 2))}),
        ({"missing": []}, {"before": good, "after": figures_section(np.array([[1.0, 1.0, 0.0]]))}),
    ):
        with pytest.raises(WireError):
            check_answer(kinds_by_event(), unit, header, sections, sizes)
