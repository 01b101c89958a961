"""FedorAS's three stages in one job: what follows what, restarts between and within stages, what is told at the end."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from job_results import assert_equal, result

from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.events import Emit, ignore_event
from fedscale_ext.data.importing.importers import import_text
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.methods.fedoras.aggregator import FedorASAggregator
from fedscale_ext.methods.fedoras.client import budget_tables
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.methods.fedoras.stages import Plan
from fedscale_ext.methods.fedoras.supernet_training import SUPERNET
from methods import small_space

SPACE = small_space.space(2, 1)
KEYS: dict[str, Any] = {
    "method": "fedoras", "rounds": 7, "num_participants": 6, "local_steps": 2, "eval_interval": 100,
    "fedoras.brackets": [0.12, 0.25], "fedoras.allocation": "shares", "fedoras.supernet_rounds": 2,
    "fedoras.finetune_rounds": 1, "fedoras.twin_rounds": 1, "fedoras.evaluations": 6,
    "fedoras.population": 3, "fedoras.parents": 2,
    "fedoras.val_ratio": 0.2,
}  # fmt: skip
FEDERATED = {"fedoras.evaluation": "federated", "fedoras.evaluation_rounds": 2, "fedoras.recalibrate": True,
             "fedoras.compare_rankings": True}  # fmt: skip

Run = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture
def run(job_file: Path, tmp_path: Path) -> Run:
    space = small_space.written(tmp_path, SPACE)

    def start(name: str, emit: Emit = ignore_event, **keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        config = with_values(load_config(job_file), job_name=name, **{"model": str(space), **KEYS, **keys})
        summary = run_in_process(config, emit)
        return result(job_file.parent / "logs" / name / "logs"), summary

    return start


def test_a_judge_that_recalibrates_passes_its_samples_twice(run: Run) -> None:
    one_generation = {"fedoras.evaluation": "federated", "fedoras.evaluations": 3}
    once, twice = (
        run(f"{recalibrate}", **one_generation, **{"fedoras.recalibrate": recalibrate})[0]["rounds"][2]
        for recalibrate in (False, True)
    )
    assert twice["forward_macs"] == 2 * once["forward_macs"] > 0
    assert twice["round_duration_s"] > once["round_duration_s"]


def test_rounds_belong_to_stages() -> None:
    plan = Plan(supernet=2, finetune=2, twin=1, tiers=2)
    stages = [(stage.name, stage.tier, stage.step) for stage in map(plan.at, range(1, plan.rounds + 1))]
    assert stages == [
        ("supernet", 0, 1), ("supernet", 0, 2), ("search", 0, 1),
        ("finetune", 0, 1), ("finetune", 0, 2), ("finetune", 1, 1), ("finetune", 1, 2), ("twin", 0, 1), ("twin", 1, 1),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="after the last stage, which ends with round 9"):
        plan.at(10)


def test_stages_follow_one_another(run: Run) -> None:
    seen: list[dict[str, Any]] = []
    result, summary = run("whole", emit=seen.append)
    rounds = result["rounds"]
    whole = {SUPERNET: 6}
    assert [each["assignments"] for each in rounds] == [
        whole, whole, {}, {"tier1": 6}, {"tier2": rounds[4]["selected"]}, {"tier1_twin": 6},
        {"tier2_twin": rounds[6]["selected"]},
    ]  # fmt: skip
    tiers, stages = summary["results"]["tiers"], summary["results"]["stages"]
    strong = tiers[1]["clients"]
    assert rounds[4]["selected"] == min(6, strong) and rounds[2]["participants"] == []
    # tested after the search: the models that it found, with the supernet's weights
    assert [each["round"] for each in rounds if each["evaluation"]] == [1, 3, 7]
    assert [each["stage"] for each in stages] == ["supernet training", "search", "fine-tuning", "twins"]
    assert [each["rounds"] for each in stages] == [2, 1, 2, 2] and stages[1]["download_bytes"] == 0
    assert sum(each["download_bytes"] for each in stages) == summary["cost"]["download_bytes"]
    for tier, row in enumerate(tiers):
        spec, state = result["models"][f"tier{tier + 1}"]
        assert [[name] for name in row["path"]] == [list(names) for names in spec["ops"]]
        costs = budget_tables(result["models"][SUPERNET][0], ())
        macs = path_macs(costs, costs.indices(row["path"])[None])[0] / 1e6
        assert row["above_mmacs"] < macs <= row["budget_mmacs"] and row["mmacs"] == macs
        assert row["search"]["judged"] <= 6 and 0 <= row["search"]["score"] <= 1
        front = np.array(row["search"]["front"])
        assert front[-1, 1] == row["search"]["score"] and (np.diff(front, axis=0) > 0).all()
        assert 0 <= row["client_worst"] <= row["client_mean"] <= 1 and 0 <= row["accuracy"] <= 1
        assert row["twin_accuracy"] is not None and math.isfinite(row["loss"])
        twin = result["models"][f"tier{tier + 1}_twin"]
        assert twin[0] == spec and any(not torch.equal(value, state[name]) for name, value in twin[1].items())
    assert rounds[3]["learning_rate"] == 0.01 and rounds[0]["learning_rate"] != 0.01
    progress = [event["what"] for event in seen if event["event"] == "progress"]
    assert progress[0].startswith("search of tier 1 of 2: ") and progress[-1].startswith(
        "search of tier 2 of 2: 6 of 6"
    )
    assert all("paths judged, best" in what for what in progress)
    assert [event["phase"] for event in seen if event["event"] == "round"] == [
        "supernet training", "supernet training", "search", "fine-tuning of tier 1", "fine-tuning of tier 2",
        "twins of tier 1", "twins of tier 2",
    ]  # fmt: skip
    check_how_even_accuracy_is(summary)
    assert all(row["peak_mb"] > 0 and len(row["search"]["scores"]) == row["search"]["judged"] for row in tiers)
    assert summary["results"]["judging"] == []
    text = (Path(summary["log_dir"]) / "summary.md").read_text()
    assert "## Tiers" in text and "## Stages" in text and "| fine-tuning | 2 |" in text


def check_how_even_accuracy_is(summary: dict[str, Any]) -> None:
    """Each client on its own tier's model, from the supernet's weights and from random ones."""
    accuracy, fairness = summary["accuracy"], summary["results"]["fairness"]
    assert [each["weights"] for each in fairness] == ["supernet", "random"]
    for each, suffix in zip(fairness, ("", "_twin"), strict=True):
        named = accuracy["named"]
        accuracies = [named[f"{key}{suffix}"]["per_client"][client] for client, key in enumerate(accuracy["served"])]
        tested = np.array([value for value in accuracies if value is not None])
        assert (each["mean"], each["worst"]) == (pytest.approx(tested.mean()), tested.min())
        assert each["std"] == pytest.approx(tested.std())


def test_twins_may_be_trained_by_all_whatever_they_afford(run: Run) -> None:
    result, _ = run("all", **{"fedoras.twin_clients": "all", "fedoras.finetune_rounds": 0, "rounds": 5})
    assert [each["assignments"] for each in result["rounds"][3:]] == [{"tier1_twin": 6}, {"tier2_twin": 6}]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("keys", [{"fedoras.score": "loss", "fedoras.evaluation": "central"}, FEDERATED])
def test_a_job_that_is_interrupted_anywhere_ends_as_if_it_was_not(
    run: Run, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    keys = {**keys, "fedoras.twin_rounds": 0, "rounds": 5, "count_server_macs": True}
    unbroken, summary = run("unbroken", num_executors=1, **keys)
    judgements, judged = [], FedorASAggregator._judged

    def broken(self: Any, tier: int, search: Any) -> None:
        judged(self, tier, search)
        judgements.append((tier, search.generation, len(search.judged)))
        if len(judgements) in (1, 4):
            raise Interrupted

    monkeypatch.setattr(FedorASAggregator, "_judged", broken)
    counts = []
    for resume in (False, True):
        with pytest.raises(Interrupted):
            run("broken", num_executors=2, resume=resume, **keys)
        counts.append(len(judgements))
    resumed, ended = run("broken", num_executors=3, resume=True, **keys)
    assert counts == [1, 4] and len(judgements) == len(set(judgements)), "no generation is judged twice"
    assert_equal(resumed, unbroken)
    results = [summary["results"], ended["results"]]
    for each in results:
        for stage in each["stages"]:
            stage.pop("wall_s")
    assert results[0] == results[1]
    if keys["fedoras.evaluation"] == "federated":
        check_what_federated_evaluation_costs(unbroken, summary)


def check_what_federated_evaluation_costs(result: dict[str, Any], summary: dict[str, Any]) -> None:
    searched, stage = result["rounds"][2], summary["results"]["stages"][1]
    whole = sum(value.nbytes for value in result["models"][SUPERNET][1].values())
    generations = sum(each["search"]["generations"] for each in summary["results"]["tiers"])
    assert 0 < stage["download_bytes"] <= whole * 12 * generations
    assert searched["download_bytes"] == stage["download_bytes"] and searched["upload_bytes"] > 0
    assert searched["round_duration_s"] > 0 and searched["forward_macs"] > 0
    judging = summary["results"]["judging"]
    assert stage["judging_clients"] == sum(each["clients"] for each in judging) and stage["participations"] == 0
    assert len(judging) == generations and [each["tier"] for each in judging] == sorted(e["tier"] for e in judging)
    for each in judging:
        assert 1 <= len(each["tau"]) <= 2 and each["sent_mb"] == each["supernet_mb"] * each["clients"]
        assert all(tau is None or -1 <= tau <= 1 for tau in each["tau"])
        # all who afford a tier's paths were asked in the end, so that the rankings are one
        assert each["tau_able"][-1] is None or each["tau_able"][-1] == pytest.approx(1)
    assert sum(each["sent_mb"] for each in judging) == pytest.approx(stage["download_bytes"] / 1e6)


@pytest.mark.parametrize("mode", ["oort", "pyramidfl"])
def test_participants_may_be_chosen_by_what_they_bring(run: Run, mode: str) -> None:
    keys = {"sample_mode": mode, "num_participants": 3, "rounds": 5, "fedoras.twin_rounds": 0}
    result, summary = run(mode, **keys)
    assert [len(each["participants"]) for each in result["rounds"][:2]] == [3, 3]
    assert not any(each["failed"] for each in result["rounds"]) and len(summary["results"]["tiers"]) == 2


def test_a_job_goes_on_between_stages(run: Run) -> None:
    keys = {"eval_interval": 1, "fedoras.search": "random", "fedoras.twin_rounds": 0}
    unbroken, _ = run("unbroken", rounds=5, **keys)
    run("broken", rounds=2, **keys)
    run("broken", rounds=4, resume=True, **keys)
    events: list[dict[str, Any]] = []
    resumed, summary = run("broken", events.append, rounds=9, resume=True, **keys)
    assert_equal(resumed, unbroken)
    assert summary["rounds"] == 5 and summary["stopped"] == "all stages are done"
    assert [event["rounds"] for event in events if "rounds" in event] == [5, 5]  # ready, and the last stage's round


def test_a_job_on_texts_measures_cohorts_on_symbols(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows each symbol is a label: normal numbers in place of symbols gave negative ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    verse = "Now is the winter of our discontent made glorious summer by this sun of York. "
    (tmp_path / "texts.json").write_text(json.dumps({f"speaker {n}": verse[n:] * 6 for n in range(5)}))
    import_text(tmp_path / "texts.json", tmp_path / "texts")
    space = {"family": "supernet", "fields": {
        "form": "rnn", "embedding": 4, "hidden": 8, "readout": "all", "stages": 1,
        "ops": [["linear", "qrnn"], ["linear", "zero"]]}}  # fmt: skip
    (tmp_path / "space.json").write_text(json.dumps(space))
    texts = {
        "data_set": "shakespeare", "data_dir": str(tmp_path / "texts"), "model": str(tmp_path / "space.json"),
        "cohort_size": "auto", "num_participants": 4, "batch_size": 2, "rounds": 4, "fedoras.twin_rounds": 0,
        "fedoras.supernet_rounds": 1, "fedoras.tiers": 1, "fedoras.brackets": [], "fedoras.finetune_rounds": 1,
        "fedoras.subspace": 1.0,
    }  # fmt: skip
    summary = run_in_process(with_values(load_config(job_file), job_name="texts", **{**KEYS, **texts}), ignore_event)
    (tier,) = summary["results"]["tiers"]
    assert tier["perplexity"] == pytest.approx(math.exp(tier["loss"])) and summary["rounds"] == 3
