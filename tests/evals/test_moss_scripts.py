"""Moss's tables and figures: what they run, what they make of jobs, and what claims they decide."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals.moss import arms, fig4, fig8, fig11a, ledger, published, readings, rows, table3
from evals.moss.arms import ACCURACY, BASELINES, GLOBAL, LITERAL, LOCAL, MOSS, PRUNING, ROUNDS
from evals.moss.settings import BATCHES, DEALT, EXCEPTIONS, MOMENTA, PAPER, RATES, THIRD, TYPED
from evals.paper import device_types, jobs
from evals.paper import ledger as judge
from evals.paper.engine import planned
from evals.paper.experiment import Arm, Run
from evals.paper.output import experiment_of

SCRIPTS = """table3 table4 fig4 fig5 fig6 fig7 fig8 fig9 fig10 fig11a fig11b fig11c momentum readings matching
    kinds""".split()


experiment = partial(experiment_of, "moss")


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_arm_is_a_job_that_its_method_understands(name: str, scale: str, jobs_of: Callable[..., Any]) -> None:
    for data, keys, params in jobs_of(PAPER, experiment(name), scale):
        devices = PAPER.keys_of(data, scale)[THIRD] * 3
        if keys["method"] in DEALT:
            assert sum(params.groups) == devices == (300 if "full" in data else 30)
        if keys["method"] in TYPED:
            assert params.types[0] == keys["model"] and params.types[-1] == keys["capacity_model"]
        if keys["method"] == "moss":
            ratio = params.lr / keys["learning_rate"]
            assert ratio == 1 or (name == "readings" and round(ratio, 9) in readings.RATES.values())
            assert params.momentum == keys["client_momentum"]


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("data", arms.APPLICATIONS)
def test_all_systems_have_mosss_rates_batches_and_momenta(data: str, scale: str, jobs_of: Callable[..., Any]) -> None:
    tuned = {"lr", "momentum", "batch_size", "digest_batch"}
    seen = set()
    for study in map(experiment, ("table3", "momentum")):
        of_data = replace(study, arms=[arm for arm in study.arms if arm.data == data])
        for _, keys, params in jobs_of(PAPER, of_data, scale):
            expected = {"lr": keys["learning_rate"], "momentum": keys["client_momentum"]}
            for field in dataclasses.fields(params):
                key = f"{keys['method']}.{field.name}"
                like = field.name.removeprefix("meta_")
                if like in tuned and key not in EXCEPTIONS:
                    assert getattr(params, field.name) == expected.get(like, keys["batch_size"]), key
                    seen.add(key)
    assert seen == {key for key in (*RATES, *BATCHES, *MOMENTA) if "." in key}
    shared = PAPER.keys_of("har_local", scale)
    assert (shared["batch_size"], shared["client_momentum"]) == (32, 0.9)


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("data", arms.APPLICATIONS)
def test_fedmd_begins_with_as_many_rounds_of_training_everywhere(
    data: str, scale: str, jobs_of: Callable[..., Any]
) -> None:
    study = replace(experiment("table3"), arms=[arms.baseline("FedMD", data)])
    ((_, keys, params),) = jobs_of(PAPER, study, scale)
    assert params.private_epochs == 5 * keys["local_epochs"]  # 25 beside the paper's five


def test_the_momentum_of_the_text_is_everybodys() -> None:
    assert set(LITERAL) == set(MOMENTA)


@pytest.mark.parametrize("name", ["table3", "table4", "fig4", "fig5", "fig6"])
def test_the_same_jobs_are_shown_by_tables_and_figures(name: str) -> None:
    keys_by_arm = {(arm.label, data): dict(arm.keys) for arm, data in planned(PAPER, experiment(name), "small", None)}
    assert {(label, data): keys for (label, data), keys in keys_by_arm.items() if label != table3.LITERAL_MOSS} == {
        (arm.label, data): dict(arm.keys) for arm, data in planned(PAPER, experiment("fig5"), "small", None)
    }
    assert {label for label, _ in keys_by_arm} >= {MOSS, LOCAL, arms.BY_TYPE, *BASELINES} and len(BASELINES) == 12


def test_published_figures_are_those_of_the_paper() -> None:
    assert set(published.BASELINES) == set(BASELINES)
    ours, gems = published.figures("cifar10", MOSS), published.figures("har", "FedGEMS")
    assert (ours["small %"], ours["mean %"], ours["large MB"], ours["mean MB"]) == (70.6, 75.1, 557.1, 223.1)
    assert (gems["mean %"], gems["large MB"]) == (88.3, 0.4)
    assert published.figures("cifar10", "anything else") == {}
    for label in PRUNING:  # Table 4 charges them for Moss's models of the types, in whole rounds
        row = published.figures("cifar10", label)
        for kind, size in (("large", 42.85), ("medium", 9.036)):
            rounds = row[f"{kind} MB"] / size
            assert rounds == pytest.approx(round(rounds), abs=0.01) and 15 < rounds < 40
    for data in arms.APPLICATIONS:  # its last row is the mean of the others, to a digit or two
        for label in (MOSS, *BASELINES):
            row = published.figures(data, label)
            assert np.mean([row[f"{kind} %"] for kind in device_types.TYPES]) == pytest.approx(row["mean %"], abs=0.4)


@pytest.mark.parametrize("claim", ledger.CLAIMS)
def test_claims_are_about_rows_and_columns_that_there_are(claim: str) -> None:
    orders = ledger.CLAIMS[claim].orders
    study = experiment(ledger.CLAIMS[claim].script)
    labels = {arm.label for arm in study.arms} | {table3.gain_label(kind) for kind in device_types.TYPES}
    assert orders and {label for order in orders for label in (order.more, order.less)} <= labels
    assert all(order.column in study.columns for order in orders)


def test_a_claim_on_all_baselines_needs_all_of_them(row: Callable[..., Any]) -> None:
    def verdict(worst: float) -> str:
        table = [row(MOSS, [75.0, 76.0, 77.0], ACCURACY)]
        table += [row(label, [70.0, worst, 72.0], ACCURACY) for label in arms.DISTILLING]
        (one,) = judge.evidence(ledger.CLAIMS["M1"], table, [], "", [])
        return one.verdict

    assert verdict(71.0) == "holds" and verdict(77.0) == "open"


def _settled(label: str, accuracy: float, globally: float, rounds: float, last: float = 0.0) -> dict[str, Any]:
    figures = {ACCURACY: accuracy, GLOBAL: globally, ROUNDS: rounds, device_types.UNSETTLED: last}
    columns = {name: {"mean": value, "std": 0.0, "values": [value] * 3} for name, value in figures.items()}
    return {"label": label, "data": "x", "seeds": [1, 2, 3], "figures": columns}


def _on_rounds(
    settled: Sequence[dict[str, Any]], rest: tuple[float, float, float] = (66, 19, 12)
) -> tuple[str, Sequence[str]]:
    """M4's verdict and notes; baselines that are not among these have own, global and rounds of ``rest``."""
    others = [_settled(label, *rest) for label in BASELINES if label not in {one["label"] for one in settled}]
    (one,) = judge.evidence(ledger.CLAIMS["M4"], [*settled, *others], [], "", [])
    return one.verdict, one.notes


def test_what_collapsed_or_never_settled_says_nothing_of_convergence() -> None:
    moss, local, collapsed = _settled(MOSS, 70, 50, 8), _settled(LOCAL, 65, 20, 9), (12.0, 10.0, 1.0)
    verdict, notes = _on_rounds(
        [moss, local, _settled("HeteroFL", *collapsed), _settled("FedMD", 80, 40, 25, last=1.0)]
    )
    assert verdict == "holds"
    assert "left out, as it is no more accurate than local training: HeteroFL" in notes
    assert "left out, as it settles at the last evaluation: FedMD" in notes
    assert _on_rounds([moss, local, _settled("FedDF", 66, 19, 4)])[0] == "does not hold"
    assert _on_rounds([_settled(MOSS, 70, 50, 25, last=2.0), local])[0] == "open"
    assert _on_rounds([moss, local], collapsed)[0] == "open"
    assert "has nothing beside it" in _on_rounds([moss])[1][0]
    assert all(ledger.CLAIMS[claim].leaves_out for claim in ("M4", "M5", "M5, energy", "M6", "M7, rounds"))


def test_jobs_are_told_apart_by_what_files_hold_and_not_where(tmp_path: Path) -> None:
    for number, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.json").write_text(json.dumps({"width": 4}))
        (tmp_path / name / "other.json").write_text(json.dumps({"width": number}))

    def digest(folder: str, model: str, public: str) -> str:
        hexdigest: str = jobs.digest(
            {"types": [str(tmp_path / folder / model), "b"], "public_dir": f"/{folder}/{public}"}
        )
        return hexdigest

    assert digest("one", "m.json", "fsdd") == digest("two", "m.json", "fsdd")
    assert digest("one", "other.json", "fsdd") != digest("two", "other.json", "fsdd")
    assert digest("one", "m.json", "fsdd") != digest("one", "m.json", "fashion-iid")


def test_curves_are_late_settled_and_reached() -> None:
    curve = [(number, min(number, 5) / 10) for number in range(1, 9)]
    assert device_types.late(curve, 8) == 0.5  # rounds 7 and 8
    assert device_types.settled_round(curve) == 7  # the mean of three
    assert device_types.first_reached(curve, 0.45) == 6
    assert device_types.first_reached(curve, 0.6) is None


@pytest.fixture(scope="module")
def trained(session_job_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """A job of two rounds on seven clients, three types of network."""
    runs = tmp_path_factory.mktemp("runs")
    types, sizes = ["resnet18_speech", "mobilenetv2_thin", "lenet_6k"], [2, 2, 3]
    shared: dict[str, Any] = {"num_participants": 7, "rounds": 2, "local_steps": 1, "eval_interval": 1,
                              "model": types[0], "capacity_model": types[-1], "record_internals": True,
                              "public_samples": 6, "test_on_all": True, "personalise_epochs": 1,
                              "test_around_training": True}  # fmt: skip

    def run(label: str, **more: Any) -> Run:
        arm = {MOSS: arms.moss, LOCAL: arms.local}.get(label, lambda: arms.baseline(label))()
        method = arm.keys["method"]
        smallest_first = method in ("heterofl", "fjord")
        dealt = {f"{method}.groups": sizes[::-1] if smallest_first else sizes} if method in DEALT else {}
        named = {f"{method}.types": types} if method in TYPED else {}
        keys = {**shared, **arm.keys, **dealt, **named, **more}
        log_dir = jobs.train(keys, "tiny", 1, session_job_file, runs, in_process=True)
        return Run(arm, "cifar10_30-h0.1", 1, log_dir, jobs.figures(log_dir))

    return run


@pytest.fixture(scope="module")
def ours(trained: Callable[..., Run]) -> Run:
    return trained(MOSS, **{"moss.epochs": 1})


def test_a_jobs_figures_by_type(ours: Run) -> None:
    (shown,) = rows.by_type([ours])
    assert ours.log_dir is not None
    types = device_types.types_of_clients(ours.log_dir)
    assert np.bincount(types).tolist() == [2, 2, 3]
    (_, last), *_ = list(device_types.evaluations(ours.log_dir))[-1:]
    for index, kind in enumerate(device_types.TYPES):
        assert shown.figures[f"{kind} %"] == pytest.approx(100 * np.nanmean(last[types == index]))
        assert 1 <= shown.figures[f"{kind} rounds"] <= 2
    job = jobs.summary(ours.log_dir)
    for kind, model in zip(device_types.TYPES, job["results"]["types"], strict=False):
        whole = job["accuracy"]["named"][model["type"]]["accuracy"]
        assert shown.figures[f"{kind} global %"] == pytest.approx(100 * whole)
    assert shown.figures["mean personalised %"] == pytest.approx(100 * job["personalised"]["mean"])
    rows_of = {row["type"]: row for row in job["results"]["types"]}
    for what, name in ((device_types.BEFORE, "before_training"), (device_types.AFTER, "after_training")):
        assert shown.figures[f"mean {what}"] == pytest.approx(100 * job[name]["mean"])
        assert shown.figures[f"small {what}"] == pytest.approx(100 * rows_of["lenet_6k"][f"accuracy_{name}"])
    assert shown.figures[device_types.UNSETTLED] in (0.0, 1.0, 2.0, 3.0)
    models = {model["key"]: model["cost"]["bytes"] for model in job["models"]}
    large = models["resnet18_speech"] * shown.figures["large rounds"] / 1e6
    assert shown.figures["large MB"] == pytest.approx(large)
    assert set(arms.ALL_COLUMNS) <= set(shown.figures) and shown.figures["traffic MB"] > large
    (faithful,) = fig8.with_fidelity([ours])
    assert 0 < faithful.figures[fig8.FIRST] < 1 and fig8.SETTLED in faithful.figures


def test_rounds_in_which_no_proxy_learnt_have_no_fidelity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def line(round: int, **fidelity: float) -> dict[str, Any]:
        moved: dict[str, Any] = {f"forward.{key}": {} for key in fidelity}
        return {"round": round, "fidelity": {"L": 1.0, **fidelity}, "transfers": moved}

    def shown(lines: Sequence[dict[str, Any]], settled: float) -> dict[str, float]:
        (tmp_path / "internals.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
        monkeypatch.setattr(fig8, "by_type", lambda runs: [replace(run, figures={ROUNDS: settled}) for run in runs])
        (run,) = fig8.with_fidelity([Run(Arm(MOSS), "x", 1, tmp_path)])
        return {name: run.figures[name] for name in (fig8.FIRST, fig8.SETTLED) if name in run.figures}

    learnt, diverged = line(1, M=0.5, S=0.7), line(2)  # L is a copy
    assert shown([learnt, diverged], 1.0) == pytest.approx({fig8.FIRST: 0.6, fig8.SETTLED: 0.6})
    assert shown([learnt, diverged], 2.0) == pytest.approx({fig8.FIRST: 0.6})
    assert shown([{**diverged, "round": 1}, {**learnt, "round": 2}], 2.0) == pytest.approx({fig8.SETTLED: 0.6})
    nobody: dict[str, Any] = {"round": 2}  # took part
    assert shown([learnt, nobody, {**learnt, "round": 3}], 2.0) == pytest.approx({fig8.FIRST: 0.6})
    assert shown([nobody], 1.0) == {}


@pytest.mark.slow
def test_methods_without_types_have_rows_by_moss_devices(ours: Run, trained: Callable[..., Run]) -> None:
    lottery, fjord = trained("LotteryFL"), trained("FjORD")
    shown = {run.arm.label: run.figures for run in fig4.with_rounds_to_there([ours, lottery, fjord])}
    assert ours.log_dir is not None and lottery.log_dir is not None
    types = device_types.types_of_clients(ours.log_dir)
    (_, last), *_ = list(device_types.evaluations(lottery.log_dir))[-1:]
    assert shown["LotteryFL"]["small %"] == pytest.approx(100 * np.nanmean(last[types == 2]))
    sizes = dict(zip(device_types.TYPES, rows.model_sizes(ours), strict=True))
    for label in ("LotteryFL", "FjORD"):  # as the paper charges them
        for kind, size in sizes.items():
            assert shown[label][f"{kind} MB"] == pytest.approx(size * shown[label][f"{kind} rounds"])
    assert shown["LotteryFL"]["mean J"] > 0 and shown["LotteryFL"]["small kept %"] > 40
    assert 4 < shown["FjORD"]["small kept %"] < 7 and "small kept %" not in shown[MOSS]
    assert all(f"{kind} global %" in shown["FjORD"] for kind in device_types.TYPES)
    local = trained(LOCAL)  # deals the same types
    by_local = {run.arm.label: run.figures for run in rows.by_type([local, lottery])}["LotteryFL"]
    assert by_local == {name: value for name, value in shown["LotteryFL"].items() if name in by_local}
    assert set(device_types.columns("%")) | set(device_types.columns("MB")) <= set(by_local)
    (alone,) = rows.by_type([lottery])
    assert "mean %" in alone.figures and "small %" not in alone.figures and "mean MB" not in alone.figures


@pytest.mark.slow
def test_local_training_exchanges_nothing(trained: Callable[..., Run], ours: Run) -> None:
    local = trained(LOCAL)
    assert local.log_dir is not None
    shown = {run.arm.label: run.figures for run in rows.by_type([ours, local])}[LOCAL]
    assert not {"mean MB", "traffic MB", "mean s"} & set(shown) and "small global %" in shown
    by_client = jobs.summary(local.log_dir)["on_all"]["per_client"]
    assert shown["mean global %"] == pytest.approx(100 * np.mean(by_client)) and len(set(by_client)) > 3


def test_gains_are_told_where_all_baselines_have_finished(tmp_path: Path) -> None:
    figures = dict.fromkeys(device_types.columns("%"), 50.0)
    runs = [Run(Arm(label), "x", 1, tmp_path, figures) for label in BASELINES if label != "LotteryFL"]
    whole = {**figures, "small %": 65.0, "small kept %": 60.0, "medium kept %": 60.0}
    runs.append(Run(Arm("LotteryFL"), "x", 1, tmp_path, whole))
    runs.append(Run(Arm(MOSS), "x", 1, tmp_path, {**figures, "small %": 70.0}))
    gains = {run.arm.label: run.figures for run in table3.gains(runs)}
    # twelve times the 0.05 that small devices are to hold: it does not count there
    assert gains[table3.gain_label("small")] == {table3.GAIN: 20.0, table3.ABOVE_BEST: 20.0, table3.COUNTED: 11.0}
    assert gains[table3.gain_label("large")] == {table3.GAIN: 0.0, table3.ABOVE_BEST: 0.0, table3.COUNTED: 12.0}
    assert table3.gains(runs[1:]) == []
    untyped = [replace(run, figures={"mean %": 50.0}) if run.arm.label == "LotteryFL" else run for run in runs]
    assert table3.gains(untyped) == []  # its devices' types are not known yet


def test_noise_is_told_beside_the_longest_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parameters = {"L": 11_200_000, "M": 2_200_000, "S": 80_000}
    job: dict[str, Any] = {
        "models": [{"key": key, "cost": {"parameters": count}} for key, count in parameters.items()],
        "results": {"types": [{"type": key, "clients": 100} for key in [*parameters, "mean"]]},
        "privacy": {"noise_multiplier": 4.845, "epsilon": 4.5},
    }
    monkeypatch.setattr(fig11a, "by_type", list)
    monkeypatch.setattr(fig11a, "summary", lambda _: job)
    (private,) = fig11a.with_noise([Run(Arm(fig11a.label(1)), "x", 1, tmp_path)])
    assert private.figures[f"large {fig11a.NOISE_NORM}"] == pytest.approx(162, abs=0.5)  # as the note says
    assert private.figures[f"small {fig11a.NOISE_NORM}"] == pytest.approx(13.7, abs=0.1)
    job["privacy"] = None
    (open_job,) = fig11a.with_noise([Run(Arm(MOSS), "x", 1, tmp_path)])
    assert not open_job.figures


def test_systems_that_prune_are_charged_mosss_models() -> None:
    figures = {"large rounds": 2.0, "medium rounds": 3.0, "small rounds": 4.0, "large MB": 0.5, "x": 1.0}
    paid = rows.charged(figures, [10.0, 4.0, 0.5])
    assert [paid[column] for column in device_types.columns("MB")] == [20.0, 12.0, 2.0, pytest.approx(34 / 3)]
    unknown = {name: value for name, value in figures.items() if name != "large MB"}
    assert rows.charged(figures, None) == unknown
    assert "mean MB" not in rows.charged({"x": 1.0, "mean MB": 3.0}, [10.0, 4.0, 0.5])
