"""FedorAS's tables and figures: what they run, what they make of jobs, and what claims they decide."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evals.fedoras import (
    ablation,
    fig1,
    fig3,
    fig4,
    fig5,
    fig6,
    ledger,
    longer,
    searches,
    table3,
    table5,
    table6,
    table7,
    texts,
)
from evals.fedoras.arms import ACCURACY, FEDORAS, MEAN, MMACS, PEAK, SPREAD, WORST, with_twins
from evals.fedoras.settings import DATA, PAPER, SUPERNET_DECAY, SUPERNET_ROUNDS, TWIN_ROUNDS, UNTIL_DONE
from evals.fedoras.tiers import RANDOM, SUPERNET, each_tier, results, tier_label
from evals.paper import jobs, output
from evals.paper import ledger as judge
from evals.paper.engine import planned
from evals.paper.experiment import Arm, Run
from evals.paper.floor_table import LINEAR, TESTED_ON
from evals.paper.job_keys import resolved
from evals.paper.orders import Order
from evals.paper.output import experiment_of
from evals.paper.runs import Records
from fedscale_ext import models
from fedscale_ext.methods.fedoras.brackets import brackets_of
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.submodels import narrowed

SCRIPTS = "table3 table4 table5 table6 table7 fig1 fig3 fig4 fig5 fig6 ablation longer".split()
SPACE = {"family": "supernet", "fields": {
    "form": "cnn", "stem": [8, 2], "blocks": [1, 1], "reductions": [["pool", 12, 2], ["pool", 16, 2]],
    "operators": ["conv1", "dsconv3", "identity"]}}  # fmt: skip
TINY: dict[str, Any] = {
    "num_participants": 6, "local_steps": 2, "rounds": 6, "fedoras.allocation": "shares", "fedoras.supernet_rounds": 1,
    "fedoras.brackets": [0.05, 0.06, 0.075, 0.1], "fedoras.finetune_rounds": 1, "fedoras.evaluations": 2,
    "fedoras.population": 2, "fedoras.parents": 2, "fedoras.subspace": 0.9,
}  # fmt: skip


experiment = partial(experiment_of, "fedoras")


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_arm_is_a_job_that_its_method_understands(name: str, scale: str, jobs_of: Callable[..., Any]) -> None:
    for data, keys, params in jobs_of(PAPER, experiment(name), scale):
        if keys["method"] == "fedoras":
            assert keys["rounds"] == UNTIL_DONE
            assert params.twin_rounds in (0, PAPER.keys_of(data, scale)[TWIN_ROUNDS])


STEPS = ("learning_rate", SUPERNET_DECAY, "batch_size", "fedoras.finetune_lr", "fedoras.finetune_batch")


@pytest.mark.parametrize(("data", "scale"), [(name, "paper" if DATA[name].paper else "small") for name in sorted(DATA)])
def test_twins_and_fine_tuning_train_as_each_data_set_wants(data: str, scale: str) -> None:
    """Text: the public code's rate of 1 in batches of four, in all stages, whatever the sizes say of pictures."""
    keys = {"learning_rate": 0.1, "fedoras.finetune_lr": 0.01, "fedoras.finetune_batch": 32,
            **PAPER.keys_of(data, scale)}  # fmt: skip
    settings = tuple(keys[name] for name in STEPS)
    small = scale == "small"
    if DATA[data].kind == "shakespeare":
        assert settings == (1.0, 1.0, 4, 1.0, 4) and keys["fedoras.score"] == "loss"
        return
    assert settings[3:] == (0.01, 32)
    if small:  # to a fifth over the supernet's rounds
        assert settings[0] == 0.05 and keys[SUPERNET_DECAY] ** keys[SUPERNET_ROUNDS] == pytest.approx(0.2, abs=0.02)
    else:
        assert settings[:2] == (0.1, 1.0)
    # twins have fine-tuning's client and the supernet's rate
    assert not {name for name in keys if str(name).startswith("fedoras.twin_")}


@pytest.mark.parametrize(
    ("small", "whole"),
    [("cifar10", "cifar10_full"), ("cifar100", "cifar100_full"), ("speech", "speech_full"),
     ("speech12", "speech12_full"), ("tinyshakespeare", "shakespeare")],
)  # fmt: skip
def test_supernets_have_as_many_steps_for_one_of_random_weights_as_in_the_paper(small: str, whole: str) -> None:
    def steps(data: str, scale: str) -> float:
        keys = {"fedoras.finetune_batch": 32, **PAPER.keys_of(data, scale)}
        supernet = keys[SUPERNET_ROUNDS] * keys["local_epochs"] / keys["batch_size"]
        return float(supernet / (keys[TWIN_ROUNDS] / keys["fedoras.finetune_batch"]))

    assert steps(small, "small") == pytest.approx(steps(whole, "paper"), rel=0.1)


@pytest.mark.parametrize(("data", "accuracies"), [("cifar10-h0.1", [65.28, 54.84, 81.53]),
                                                  ("cifar10-h1", [90.02, 85.45, 86.46])])  # fmt: skip
def test_arms_on_one_partition_have_the_papers_figures_of_that_partition(data: str, accuracies: list[float]) -> None:
    pairs = planned(PAPER, experiment("table3"), "small", [data])
    figures = [(name, arm.paper[ACCURACY]) for arm, name in pairs if arm.label != table3.FAST_ALPHAS]
    assert figures == [(data, value) for value in accuracies]


def test_an_arm_has_no_published_figures_of_another_partition() -> None:
    (zerofl,) = (arm for arm, _ in planned(PAPER, experiment("table5"), "small", ["cifar10-h0.1"])
                 if arm.label == table5.ZEROFL)  # fmt: skip
    assert not zerofl.paper


def test_arms_of_fedoras_train_their_supernet_at_a_constant_rate_but_for_one() -> None:
    """The published configurations have no decay in stage 1."""
    arm = with_twins("cifar10-h0.1")
    keys = resolved({**PAPER.keys_of("cifar10-h0.1", "small"), **arm.keys})
    assert (keys["decay_factor"], keys["fedoras.twin_rounds"]) == (1.0, 30)
    rounds = {one.x: one.keys for one in longer.EXPERIMENT.arms if one.scales == ("small",)}
    assert {x: (arm_keys["fedoras.supernet_rounds"], arm_keys["decay_factor"]) for x, arm_keys in rounds.items()} == {
        0.375: (30, 1.0), 2.0: (160, 1.0)}  # fmt: skip
    (falling,) = (arm for arm in ablation.EXPERIMENT.arms if arm.label == ablation.FALLING)
    keys = resolved({**PAPER.keys_of("cifar10-h0.1", "small"), **falling.keys})
    assert keys["decay_factor"] == 0.980949 and "paper" not in falling.scales


def test_fednas_learns_its_alphas_at_the_published_rate_with_a_faster_row_beside(jobs_of: Callable[..., Any]) -> None:
    for name in ("table3", "table4"):
        rates = {params.alpha_lr for _, keys, params in jobs_of(PAPER, experiment(name), "small")
                 if keys["method"] == "fednas"}  # fmt: skip
        assert rates == ({3e-4, 0.02} if name == "table3" else {3e-4})


def test_opa_stands_beside_fedavg_of_full_models_and_over_holders(jobs_of: Callable[..., Any]) -> None:
    """Over the holders of each operator, FedAvg is most of OPA; the public code compares OPA of buffers alone."""
    keys = {arm.label: arm.keys for arm in ablation.EXPERIMENT.arms}
    means = [keys[label]["fedoras.mean_over"] for label in (ablation.FEDAVG, ablation.HOLDERS, ablation.BUFFERS)]
    assert means == ["participants", "holders", "participants"]
    assert list(ledger.CLAIMS["A4"].orders) == [Order(ACCURACY, FEDORAS, ablation.FEDAVG)]
    assert Order(ACCURACY, ablation.BUFFERS, ablation.FEDAVG) in ablation.EXPERIMENT.orders


def test_recorded_rows_of_the_ablation_are_called_as_its_arms() -> None:
    table = Records.load(PAPER.folder).tables["ablation_small_cifar10-h0.1"]
    recorded = {row.label for row in table.rows}
    assert recorded <= {arm.label for arm in ablation.EXPERIMENT.arms}


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_width_of_fjord_has_clients(scale: str, jobs_of: Callable[..., Any]) -> None:
    jobs = [(data, keys, params) for data, keys, params in jobs_of(PAPER, experiment("table5"), scale)
            if keys["method"] == "fjord"]  # fmt: skip
    assert len(jobs) == 3
    for data, keys, params in jobs:
        clients = DATA[data.partition("-")[0]].clients
        assert params.groups == (clients // 4,) * 4 and sum(params.groups) == clients
        assert (keys["local_epochs"], keys["batch_size"], keys["client_weight_decay"]) == (1, 32, 1e-4)


def test_each_width_of_fjord_is_within_the_budget_of_its_tier() -> None:
    spec = models.named_spec("cnn_tiny", (3, 32, 32), 10)
    brackets = brackets_of("cnn_tiny", spec, FedorASParams(), 1)
    whole = models.named_spec("resnet_tiny", (3, 32, 32), 10)
    costs = [models.cost(whole if width == 1 else narrowed(whole, width)).forward_macs for width in table5.WIDTHS]
    for bracket, cost, tier in zip(brackets, costs, range(4), strict=True):
        assert cost < bracket.high and (cost > 0.5 * bracket.high or tier < 2)


def test_partitions_of_the_paper_stand_for_those_of_the_small_data() -> None:
    assert PAPER.data_at("cifar10-h0.1", "small") == "cifar10-h0.1"
    assert PAPER.data_at("cifar10-h0.1", "paper") == "cifar10_full-h0.1"
    assert PAPER.data_at("shakespeare", "small") == "tinyshakespeare"
    assert PAPER.split_name("cifar10_100-h0.1")[1][-1] == "100"


@pytest.mark.parametrize(("name", "each"), [("cifar10", 500), ("cifar10_100", 100), ("cifar100", 150)])
def test_clients_of_pictures_have_as_many_of_them_each(name: str, each: int) -> None:
    """Table 2: training sets of about one size; a label's shares alone would make some ten times others."""
    options = PAPER.split_name(f"{name}-h0.1")[1]
    values = dict(zip(options[::2], options[1::2], strict=True))
    assert values["--samples-per-client"] == str(each) and values["--clients"] == str(DATA[name].clients)


def test_published_figures_are_those_of_the_paper() -> None:
    assert table6.PUBLISHED["cifar10-h0.1"]["tier 4, rand-init"] == {ACCURACY: 64.87}
    assert table5.PUBLISHED["cifar10-h1"]["FjORD, p = 0.25"][MMACS] == 35
    assert table7.PUBLISHED["cifar10-h0.1"][FEDORAS][WORST] == 47.0


@pytest.mark.parametrize("claim", ledger.CLAIMS)
def test_claims_are_about_columns_that_there_are(claim: str) -> None:
    entry = ledger.CLAIMS[claim]
    assert entry.says and all(order.column in experiment(entry.script).columns for order in entry.orders)


def test_a_claim_on_all_tiers_needs_all_of_them(row: Callable[..., Any]) -> None:
    def verdict(worst: float) -> str:
        rows = [row(tier_label(tier), [50.0, 51.0, 52.0], ACCURACY, "cifar10-h0.1") for tier in range(1, 5)]
        rows += [row(tier_label(tier, RANDOM), [40.0, 41.0, 42.0], ACCURACY, "cifar10-h0.1") for tier in range(1, 4)]
        rows.append(row(tier_label(4, RANDOM), [40.0, worst, 42.0], ACCURACY, "cifar10-h0.1"))
        (evidence,) = judge.evidence(ledger.CLAIMS["A1"], rows, [], "", [])
        return evidence.verdict

    assert verdict(41.0) == "holds" and verdict(52.0) == "open"


def test_the_first_claim_has_a_row_for_each_length_of_the_supernet() -> None:
    """80 rounds were taken after 30 had decided nothing: both are told."""
    short, now = ledger.CLAIMS["A1, 30 rounds"], ledger.CLAIMS["A1"]
    assert (short.script, now.script) == ("longer", "table6")
    assert [order.more for order in short.orders] == ["0.4 times the rounds, supernet"] * 4
    assert round(0.375 * PAPER.keys_of("cifar10-h0.1", "small")[SUPERNET_ROUNDS]) == 30


@pytest.fixture(scope="module")
def trained(session_job_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """A short job of FedorAS, or of another method on its space."""
    runs = tmp_path_factory.mktemp("runs")
    space = runs / "space.json"
    space.write_text(json.dumps(SPACE))
    trained_jobs: dict[str, Run] = {}

    def run(arm: Arm, **more: Any) -> Run:
        key = json.dumps([arm.label, more])
        if key not in trained_jobs:
            keys = resolved({TWIN_ROUNDS: 1, SUPERNET_DECAY: 1.0, **TINY, "model": str(space), **arm.keys, **more})
            method = keys["method"]
            keys = {name: value for name, value in keys.items() if name.partition(".")[0] in (name, method)}
            log_dir = jobs.train(keys, "tiny", 1, session_job_file, runs, in_process=True)
            trained_jobs[key] = Run(arm, "cifar10-h0.1", 1, log_dir, jobs.figures(log_dir))
        return trained_jobs[key]

    return run


@pytest.fixture(scope="module")
def job(trained: Callable[..., Run]) -> Run:
    return trained(with_twins("cifar10-h0.1"))


def test_rows_of_tables_are_made_of_a_job(job: Run) -> None:
    tiers = {run.arm.label: run for run in each_tier(job, table6.PUBLISHED["cifar10-h0.1"])}
    assert list(tiers) == [tier_label(tier, how) for tier in range(1, 5) for how in ("supernet", RANDOM)]
    assert tiers["tier 4, rand-init"].arm.paper == {ACCURACY: 64.87}
    macs = [tiers[tier_label(tier)].figures[MMACS] for tier in range(1, 5)]
    assert macs == sorted(macs) and all(PEAK in run.figures for run in tiers.values())
    gains = {run.arm.label: run for run in table6.with_gains([job])}
    by_length = {run.arm.label: run.figures for run in longer.by_length([job])}
    for how in ("supernet", RANDOM):
        each = [tiers[tier_label(tier, how)].figures[ACCURACY] for tier in range(1, 5)]
        figures = by_length[longer.label(1, how)]
        assert [figures[f"tier {tier} %"] for tier in range(1, 5)] == each
        assert figures[ACCURACY] == pytest.approx(np.mean(each))
    one = gains[table6.gain_label(4, "0.1")]
    with_it, without = (tiers[tier_label(4, how)].figures[ACCURACY] for how in ("supernet", RANDOM))
    assert one.figures == {table6.GAIN: pytest.approx(with_it - without)} and one.data == "cifar10"
    ours, random = table7.over_clients([job])
    assert (ours.arm.label, random.arm.label) == (FEDORAS, RANDOM)
    accuracies = fig4.own_accuracies(ours)
    assert ours.figures[MEAN] == pytest.approx(np.nanmean(accuracies))
    assert ours.figures[SPREAD] == pytest.approx(np.nanstd(accuracies))
    assert ours.figures[WORST] == pytest.approx(np.nanmin(accuracies)) and "tier 4 std %" in ours.figures
    (mean,) = ablation.mean_of_tiers([job])
    assert mean.figures[ACCURACY] == pytest.approx(
        np.mean([tiers[tier_label(t)].figures[ACCURACY] for t in range(1, 5)])
    )
    (best,) = searches.best_tiers([job])
    assert best.figures[ACCURACY] == max(tiers[tier_label(t)].figures[ACCURACY] for t in range(1, 5))
    (twins,) = (one for one in results(job)["stages"] if one["stage"] == "twins")
    sent = twins["download_bytes"] + twins["upload_bytes"]
    for column, left_out in {"TMACs": twins["training_macs"] / 1e12, "network MB": sent / 1e6}.items():
        assert left_out > 0 and best.figures[column] == pytest.approx(job.figures[column] - left_out)


def test_an_ablation_tells_a_job_of_two_arms_once_and_what_its_supernet_took(job: Run) -> None:
    """With --data both of the paper's settings are the same job; twins' traffic is no part of any row."""
    again = replace(job, arm=replace(job.arm, label=FEDORAS))
    (row,) = ablation.mean_of_tiers([job, again])
    (stage,) = (one for one in results(job)["stages"] if one["stage"] == "supernet training")
    sent = (stage["download_bytes"] + stage["upload_bytes"]) / 1e6
    assert row.figures[ablation.TRAFFIC] == pytest.approx(sent)
    assert all(column in row.figures for column in ablation.EXPERIMENT.columns)


def test_texts_of_another_name_have_no_published_figures(job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """--data tinyshakespeare: a name that the paper does not have."""
    losses, owner = np.log(np.full((4, 2), 3.0)), np.array([0, 0, 1, 1])
    monkeypatch.setattr(texts, "losses_of", lambda *_: (losses, owner))
    monkeypatch.setattr(texts, "_data", lambda _: (None, 4))
    rows = texts.by_tier([replace(job, arm=replace(job.arm, data="tinyshakespeare"), data="tinyshakespeare")])
    assert len(rows) == 8 and all(run.figures[texts.POOLED] == pytest.approx(3) and not run.arm.paper for run in rows)


def test_random_architectures_are_the_same_for_both_kinds_of_clients(trained: Callable[..., Run]) -> None:
    runs = [trained(arm, **{"fedoras.evaluations": 1}) for arm in fig1.random_architectures("cifar10-h0.1")]
    rows = {run.arm.label: run.figures for run in fig1.by_architecture(runs)}
    for tier in range(1, 5):
        assert rows[fig1.label(fig1.AWARE, tier)][MMACS] == rows[fig1.label(fig1.UNAWARE, tier)][MMACS]
    selected = []
    for run in runs:
        assert run.log_dir is not None
        lines = (run.log_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        selected.append(json.loads(lines[-1])["selected"])
    assert selected[1] == TINY["num_participants"] and selected[0] < selected[1]


def test_memory_of_a_search_by_gradients_is_above_that_of_a_path(job: Run, trained: Callable[..., Run]) -> None:
    fednas = trained(Arm("FedNAS", {"method": "fednas", "fednas.search_rounds": 1, "rounds": 2}))
    other, ours = searches.best_tiers([fednas, job])
    assert other.figures[PEAK] > ours.figures[PEAK] > 0 and ACCURACY in other.figures


def test_fjord_has_a_row_per_width(trained: Callable[..., Run]) -> None:
    fjord = table5.fjord("cifar10-h1")[0]
    keys = {"model": "nasbench201_base", "rounds": 1, "num_participants": 2, "local_epochs": None, "local_steps": 1}
    rows = table5.with_costs([trained(fjord, **keys, **{"fjord.groups": [1, 2, 2, 2]})])
    assert [run.arm.label for run in rows] == [table5.fjord_label(width) for width in table5.WIDTHS]
    macs = [run.figures[MMACS] for run in rows]
    assert macs == sorted(macs) and macs[0] < macs[-1]


def test_agreement_of_rankings_is_told_by_rounds_of_clients(trained: Callable[..., Run]) -> None:
    run = trained(fig6.EXPERIMENT.arms[0], **{"fedoras.evaluations": 3, "fedoras.val_ratio": 0.3})
    table = fig6.taus(run)
    assert table.shape[1] == fig6.ROUNDS and fig6.taus(run, fig6.TAU_ABLE).shape == table.shape
    of_tiers = [fig6.taus(run, tier=tier) for tier in range(1, 5)]
    assert np.array_equal(np.concatenate(of_tiers), table, equal_nan=True)
    assert ((np.abs(table) <= 1) | np.isnan(table)).all() and np.isfinite(table).any()
    rows = {row.arm.label: row.figures for row in fig6.by_rounds([run])}
    assert any(label.startswith(f"{fig6.rounds_label(8)}, tier ") for label in rows)
    assert rows[fig6.REQUIRED] == {fig6.TAU: 0.8, fig6.TAU_ABLE: 0.8} and fig6.TAU in rows[fig6.rounds_label(4)]


def test_pictures_are_drawn(job: Run, trained: Callable[..., Run], tmp_path: Path) -> None:
    federated = trained(fig6.EXPERIMENT.arms[0], **{"fedoras.evaluations": 3, "fedoras.val_ratio": 0.3})
    for script, run in ((table6, job), (table7, job), (fig1, job), (fig3, job), (fig4, job), (fig5, job),
                        (fig6, federated), (longer, job)):  # fmt: skip
        shown = script.EXPERIMENT.rows([run])
        output.draw(script.EXPERIMENT, shown, [], tmp_path / "x.png")
        assert (tmp_path / "x.png").stat().st_size > 1000
        (tmp_path / "x.png").unlink()


def test_all_symbols_of_a_text_are_foretold_or_the_last_alone() -> None:
    spec = models.named_spec("rnn_positions_largest", (1, 1, 6), 90)
    module = models.build(spec)
    x, y = torch.randint(90, (3, 1, 1, 6), generator=torch.Generator().manual_seed(1)).float(), torch.tensor([1, 2, 3])
    losses = texts.symbol_losses(module, x, y)
    last = torch.nn.functional.cross_entropy(module.eval()(x), y, reduction="none").detach()
    np.testing.assert_allclose(losses[:, 0], last, rtol=1e-5)
    before = [
        torch.nn.functional.cross_entropy(module(x[..., :length]), x[:, 0, 0, length].long(), reduction="none").detach()
        for length in range(1, 6)
    ]
    np.testing.assert_allclose(losses[:, 1], torch.stack([*before, last]).mean(0), rtol=1e-5)


def test_perplexity_is_counted_in_both_ways() -> None:
    losses = np.log(np.array([1.0, 4.0, 2.0, 2.0, 8.0]))
    owner = np.array([0, 0, 1, 1, 1])
    perplexities = texts.perplexities(losses, owner, batch=2)
    assert perplexities[texts.POOLED] == pytest.approx(2**1.4)
    assert perplexities[texts.BATCHES] == pytest.approx((2 + 2 + 8) / 3)
    assert perplexities[texts.CLIENTS] == pytest.approx((2 + 32 ** (1 / 3)) / 2)
    assert perplexities[texts.CLIENTS_STD] == pytest.approx((32 ** (1 / 3) - 2) / 2)
    assert perplexities[texts.WORST_CLIENT] == pytest.approx(32 ** (1 / 3))


def test_gains_of_networks_below_a_linear_model_say_nothing() -> None:
    def row(label: str, data: str, value: float, column: str = ACCURACY) -> dict[str, Any]:
        return {"label": label, "data": data, "figures": {column: {"mean": value}}}

    rows = [
        row(tier_label(tier, weights), f"cifar10-h{alpha}", value)
        for alpha, value in (("0.1", 30.0), ("1", 50.0))
        for tier in range(1, 5)
        for weights in (SUPERNET, RANDOM)
    ]
    floors = [row(LINEAR, f"cifar10-h{alpha}", 38.0, TESTED_ON[ACCURACY]) for alpha in ("0.1", "1")]
    reasons = table6.beside_a_better_linear_model(rows, floors)
    assert set(reasons) == {("cifar10", table6.gain_label(tier, "0.1")) for tier in range(1, 5)}
