"""HypeMeFed's tables and figures: what they run, what they make of jobs, and what claims they decide."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evals.hypemefed import (
    client_models,
    errors,
    fig3b,
    fig3c,
    fig4,
    fig11,
    fig12,
    fig13,
    fig14,
    fig15,
    ledger,
    networks,
    table1,
)
from evals.hypemefed.arms import GLOBAL, HYPEMEFED, OWN_EXIT, STALE
from evals.hypemefed.cka import cka
from evals.hypemefed.settings import PAPER
from evals.paper import jobs, output
from evals.paper import ledger as judge
from evals.paper.experiment import Arm, Run
from evals.paper.orders import Order, Row, differences
from evals.paper.output import experiment_of
from fedscale_ext.metrics.job_folder.round_records import read_records

SCRIPTS = "fig3a fig3b fig3c fig4 fig7 fig8 fig9 fig10 fig11 fig12 fig13 fig14 fig15 table1 regime composition".split()


experiment = partial(experiment_of, "hypemefed")


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_arm_is_a_job_that_its_method_understands(name: str, scale: str, jobs_of: Callable[..., Any]) -> None:
    assert jobs_of(PAPER, experiment(name), scale)


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("name", ["fig3a", "fig7", "fig8"])
def test_all_rows_are_tested_with_statistics_of_one_kind(name: str, scale: str, jobs_of: Callable[..., Any]) -> None:
    """Claims H1 to H3: else those that re-estimate them are compared with those that do not."""
    assert {keys["bn_statistics"] for _, keys, _ in jobs_of(PAPER, experiment(name), scale)} == {"federated"}


def test_layers_that_stay_as_they_were_are_a_row_beside_generated_ones() -> None:
    """The public code never applies what it generates."""
    for name in ("fig7", "fig3a"):
        (row, *_) = (arm for arm in experiment(name).arms if arm.label == STALE)
        assert row.keys["hypemefed.missing"] == "stale"
        assert Order(GLOBAL, HYPEMEFED, STALE) in experiment(name).orders


def test_ten_exits_are_run_with_and_without_scaled_layers(jobs_of: Callable[..., Any]) -> None:
    jobs = jobs_of(PAPER, experiment("fig13"), "small")
    scaled = {params.rescale for _, keys, params in jobs if keys["method"] == "hypemefed"}
    assert scaled == {False, True} and fig13.SCALED in {arm.label for arm in fig13.ten_exits()}


def test_a_data_set_stands_in_with_the_partition_that_is_asked_for() -> None:
    assert PAPER.data_at("svhn", "small") == "fashion-h0.5"
    assert PAPER.data_at("svhn-h0.1", "small") == "fashion-h0.1"
    assert PAPER.data_at("unimib-iid", "small") == "har_local-iid"
    assert PAPER.data_at("unimib-h1", "paper") == "unimib-h1"
    assert PAPER.split_name("fashion-h0.1")[1][-2:] == ["--min-samples", "50"]
    assert "--min-samples" not in PAPER.split_name("fashion-iid")[1]


def test_differences_are_paired_by_seed(row: Callable[..., Any]) -> None:
    (difference,) = differences(
        [Order(GLOBAL, "a", "b", factor=9.0, slack=9.0)], [row("a", [1, 5], GLOBAL), row("b", [2, 3, 7], GLOBAL)]
    )
    assert difference["values"] == [-1, 2] and difference["mean"] == 0.5 and difference["seeds"] == [0, 1]
    assert differences([Order(GLOBAL, "a", "b")], [row("a", [1], GLOBAL)]) == []


@pytest.mark.parametrize("claim", ledger.CLAIMS)
def test_claims_are_about_rows_that_there_are(claim: str) -> None:
    script, orders = ledger.CLAIMS[claim].script, ledger.CLAIMS[claim].orders
    if script == ledger.COST:
        assert not orders
        return
    study = experiment(script)
    labels = {arm.label for arm in study.arms}
    if script == "fig3b":
        labels = set(fig3b.PAIRS)
    if script == "fig12":
        labels |= {f"{errors.RANDOM}, {label}" for label in labels}
    assert {label for order in orders for label in (order.more, order.less)} <= labels


def test_a_claim_may_leave_out_what_a_scale_has_not(row: Callable[..., Any]) -> None:
    def verdict(rows: Sequence[Row]) -> str:
        (evidence,) = judge.evidence(ledger.CLAIMS["H8"], rows, [], "", [])
        return evidence.verdict

    rows = [row(label, [50.0, 51.0, 52.0], GLOBAL) for label in ("k=25", "k=50", "k=100", table1.ALL)]
    assert ledger.CLAIMS["H8"].script == "table1" and verdict(rows) == "holds"
    rows[0]["figures"][GLOBAL]["values"] = [47.0, 48.0, 49.0]
    assert verdict(rows) == "does not hold"
    assert verdict(rows[1:]) == "open"


def test_the_costs_of_hypernetworks_decide_two_claims(tmp_path: Path) -> None:
    cells = [("naive", 100.0, 200.0), ("k=100", 1.0, 100.0)]
    content = {"command": "x", "rows": [
        {"model": "SVHN", "precision": "float32", "label": label, "parameters": number, "epoch_cpu_s": seconds}
        for label, number, seconds in cells]}  # fmt: skip
    assert ledger.costs(tmp_path) == []
    (tmp_path / "hypernetwork_cost.json").write_text(json.dumps(content))
    memory, speed = ledger.costs(tmp_path)
    assert (memory.name, memory.verdict) == ("H6", "holds")
    assert (speed.name, speed.verdict, speed.reason) == ("H7", "open", "one measurement")
    content["rows"][0].update(parameters=49.0, epoch_cpu_s=180.0)
    (tmp_path / "hypernetwork_cost.json").write_text(json.dumps(content))
    assert [one.verdict for one in ledger.costs(tmp_path)] == ["does not hold", "open"]


def test_cka_sees_through_rotation_and_scale_alone() -> None:
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(50, 8, generator=draw) for _ in range(2))
    turned, _ = torch.linalg.qr(torch.randn(8, 8, generator=draw))
    assert cka(x, 3 * x @ turned + 1) == pytest.approx(1, abs=1e-5)
    centred = [each - each.mean(0) for each in (x, y)]
    a, b = centred
    by_features = (b.T @ a).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())
    assert cka(x, y) == pytest.approx(float(by_features), rel=1e-5) and cka(x, y) < 0.5


def test_errors_are_means_over_late_rounds_and_convolutions(tmp_path: Path) -> None:
    def values(mae: float) -> dict[str, float]:
        return {"mae": mae, "normalised": 2 * mae, "mae_old": 0.1, "mae_random": 0.5}

    lines = [{"round": 1, "generated": {"block2.conv1.weight": values(9.0)}},
             {"round": 2, "generated": {"block2.conv1.weight": values(0.2), "block3.conv1.weight": values(0.4),
                                        "block3.bn1.weight": values(7.0),
                                        "exit3.linear.weight": values(7.0)}}]  # fmt: skip
    (tmp_path / "internals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    generated, old, random = errors.with_other_guesses([Run(Arm("k=25"), "har", 1, tmp_path)])
    assert generated.figures["MAE"] == pytest.approx(0.3) and generated.figures["MAE, block 3"] == 0.4
    assert (old.arm.label, random.arm.label) == ("old layer, k=25", "random order, k=25")
    assert old.figures["normalised MAE"] == pytest.approx(0.2) and random.figures["MAE"] == 0.5
    assert fig12.ORDERS[0] == Order("normalised MAE", "random order, k=25", "k=25")


def test_latencies_are_by_the_levels_of_hypemefeds_job(tmp_path: Path) -> None:
    runs = []
    for label, seconds, late in (("FedAvg-L", [9.0, 6.0, 3.0], 80.0), ("HypeMeFed", [2.0, 4.0, 3.0], 75.0)):
        folder = tmp_path / label
        folder.mkdir()
        line = {"participants": [3, 1, 2], "client_computation_s": [each - 0.5 for each in seconds],
                "client_communication_s": [0.5] * 3, "client_durations_s": [*seconds, 8.0],  # one failed
                "seconds": {"aggregate": 0.5}}  # fmt: skip
        (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        (folder / "summary.json").write_text(json.dumps({"accuracy": {"served": ["exit3", "exit2", "exit1"]}}))
        runs.append(Run(Arm(label), "har", 1, folder, {GLOBAL: late}))
    whole, ours = fig15.latencies(runs)
    assert [whole.figures[key] for key in (fig15.WEAK, fig15.MODERATE, fig15.AMPLE)] == [9.0, 3.0, 6.0]
    assert ours.figures[fig15.WEAK] == 2.0 and ours.figures["below FedAvg-L, pp"] == 5.0


def test_up_to_a_depth_is_what_a_client_holds() -> None:
    state = {name: torch.zeros(1) for name in ("common.conv1.weight", "block1.a", "exit1.a", "block2.a", "block10.a")}
    assert list(networks.up_to(state, 2)) == list(state)[:4]


@pytest.fixture(scope="module")
def job(session_job_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short job of HypeMeFed."""
    keys = {"method": "hypemefed", "model": "multi_exit_cnn3", "hypemefed.groups": [3, 2, 2], "hypemefed.epochs": 2,
            "num_participants": 6, "rounds": 2, "local_epochs": 1, "record_internals": True}  # fmt: skip
    runs = tmp_path_factory.mktemp("runs")
    lines = session_job_file.read_text(encoding="utf-8").splitlines()
    own_file = runs / "job.yml"  # clients train in epochs
    own_file.write_text("\n".join(line for line in lines if "local_steps" not in line), encoding="utf-8")
    log_dir = jobs.train(keys, "tiny", 1, own_file, runs, in_process=True)
    return Run(Arm("job"), "tiny", 1, log_dir, jobs.figures(log_dir))


def test_a_jobs_hypernetworks_come_back(job: Run) -> None:
    assert job.log_dir is not None
    assert set(job.figures) >= {GLOBAL, OWN_EXIT, "global %", "round s"}
    records = [one for one in read_records(job.log_dir / "metrics.jsonl") if one.evaluation and one.round > 1.5]
    evaluation = records[-1].evaluation
    assert evaluation is not None and set(evaluation.serve) == {"exit1", "exit2", "exit3"}
    accuracies = np.array(evaluation.correct)[evaluation.count > 0] / evaluation.count[evaluation.count > 0]
    assert len(records) == 1 and job.figures[OWN_EXIT] == pytest.approx(100 * accuracies.mean())
    _, state, depth = networks.whole_model(job.log_dir)
    assert depth == 3
    layer_errors = networks.last_layer_errors(job.log_dir)
    assert set(layer_errors) == {1, 2} and all(0.05 < error < 20 for error in layer_errors.values())
    layers = networks.hypernetworks(job.log_dir).generate([networks.up_to(state, 1)])[0]
    assert set(layers) == {"block2.conv1.weight", "block3.conv1.weight"}


def test_rows_of_figures_are_made_of_jobs(job: Run) -> None:
    rows = {run.arm.label: run.figures for run in fig14.by_depth([job])}
    assert set(rows["generated"]) == {"block 2", "block 3"} == set(rows["trained entries in random order"])
    assert set(rows["last block, generated from this one"]) == {"block 1", "block 2"}
    both = [replace(job, arm=Arm(label)) for label in ("S X", "L X")]
    (pair,) = fig3b.similarities(both)
    assert pair.arm.label == "S-L (X-X)" and pair.figures["CKA"] == pytest.approx(1, abs=1e-6)  # one model's prefixes


def test_last_layers_of_clients_that_trained_on_their_own(job: Run, tmp_path: Path) -> None:
    assert job.log_dir is not None
    clients = client_models.trained_clients(job.log_dir)
    assert (len(clients.learning), len(clients.held_out), clients.last) == (5, 2, ["block3.conv1.weight"])
    name = clients.last[0]
    assert not torch.equal(clients.held_out[0][name], clients.start[name])  # trained
    assert not torch.equal(clients.held_out[0][name], clients.held_out[1][name])  # each on its own
    rows = {run.arm.label: run.figures for run in fig3c.by_guess([job])}
    near, far = rows[client_models.OTHERS], rows[client_models.RANDOM]
    assert near["normalised MAE"] < far["normalised MAE"] and rows[client_models.GENERATED]["spread / trained"] > 0
    start_errors = torch.stack([(clients.start[name] - state[name]).abs().mean() for state in clients.held_out])
    assert rows[client_models.START]["MAE"] == pytest.approx(float(start_errors.mean()), rel=1e-5)
    components = {run.arm.label: run.figures["MAE"] for run in fig11.by_components([job])}
    assert set(components) == {"k=25", "k=50", "k=100", "k=all", "random"}
    assert components["k=100"] == components["k=all"] != components["k=25"]  # the layer has 96 components
    for script in (fig3c, fig4, fig11):
        path = tmp_path / f"{script.__name__}.png"
        output.draw(script.EXPERIMENT, script.EXPERIMENT.rows([job]), [], path)
        assert path.stat().st_size > 1000
