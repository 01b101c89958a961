"""FedorAS after the search, hook by hook: who trains a tier's model and how, who judges what."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from synthetic_job import records

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.core.types import Evaluation
from fedscale_ext.methods.fedoras.aggregator import FedorASAggregator
from fedscale_ext.methods.fedoras.figures import accuracies, perplexity_of, stage_figures
from fedscale_ext.methods.fedoras.fine_tuning import FineTuning, JobKeys
from fedscale_ext.methods.fedoras.judge_task import read_figures
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.path_scoring import PathScorer
from fedscale_ext.methods.fedoras.stages import Plan, Stage
from fedscale_ext.models.supernet.family import path_of
from fedscale_ext.submodels import count_mean
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.evaluation_figures import COLUMNS, figures_section
from fedscale_ext.transport import wire
from methods.fedoras.test_whole_jobs import SPACE
from methods.harness import equal, server, trained, updates_for
from methods.small_space import written

ROUNDS = {"supernet_rounds": 1, "finetune_rounds": 3, "twin_rounds": 1}
PATHS = [("identity", "dsconv3", "conv1"), ("conv1", "dsconv3_double", "identity")]


@pytest.fixture
def fedoras(tmp_path: Path) -> Any:
    """After a search that found PATHS for two tiers of clients 1 to 3 and 4 to 6."""
    space = written(tmp_path, SPACE)

    def make(**keys: Any) -> Any:
        params = {"model": str(space), "allocation": "shares", "brackets": [0.12, 0.25], **ROUNDS, **keys}
        aggregator = server(FedorASAggregator, "fedoras", shape=(1, 28, 28), capacity=[1, 2, 3, 4, 5, 6], **params)
        aggregator.searches.results = [{"path": list(path)} for path in PATHS]
        aggregator.round = 2
        assert aggregator.assign(2, np.zeros(0, dtype=np.int64)) == [] and not aggregator.candidates(2)[0].any()
        return aggregator

    return make


@pytest.fixture(autouse=True)
def _charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedorASAggregator, "charge", lambda self, **spent: None)


def test_a_tiers_model_is_trained_by_its_tier_and_above(fedoras: Any) -> None:
    aggregator = fedoras()
    aggregator.args.num_participants = 5
    assert aggregator.tier_of.tolist() == [0, 0, 0, 1, 1, 1]
    for round, able, number in ((1, 6, 5), (3, 6, 5), (6, 3, 3), (9, 6, 5), (10, 3, 3)):
        mask, most = aggregator.candidates(round)
        assert (mask.sum(), most) == (able, number), round
    assert fedoras(finetune_clients=2).candidates(3)[1] == 2
    weak = fedoras(unsupported=[[], ["dsconv3"]])
    assert weak.candidates(3)[0].tolist() == [True] * 3 + [False] * 3  # what devices of the tier above cannot run


def test_fine_tuning_is_fedavg_from_the_supernets_weights(fedoras: Any) -> None:
    aggregator = fedoras(finetune_epochs=2, finetune_batch=7, finetune_lr=0.1, finetune_lr_end=0.5)
    spec, state = aggregator.pool["tier2"].spec, aggregator.pool["tier2"].state
    assert spec == path_of(aggregator.training.spec, PATHS[1]) and aggregator.pool["tier2"].part is None
    assert all(torch.equal(value, aggregator.pool["supernet"].state[name]) for name, value in state.items())
    items = aggregator.assign(6, np.array([4, 6]))
    assert {item.model for item in items} == {"tier2"}
    held_out = len(hold_out(60, 0.1, aggregator.seed, 6)[1])
    assert aggregator.task.step_sizes(6, items[1].overrides).sum() == 2 * (60 - held_out)
    updates = updates_for(aggregator, items)
    states = [trained(state, 6, update.client) for update in updates]
    for update, client_state in zip(updates, states, strict=True):
        aggregator.collect(6, update, client_state)
    aggregator.aggregate(6, updates, {})
    expected = count_mean(state, [(states[0], None, 40.0), (states[1], None, 60.0)])
    assert equal(aggregator.pool["tier2"].state, expected)
    np.testing.assert_allclose([aggregator.learning_rate(round) for round in (6, 7, 8)], [0.1, 0.075, 0.05])


def test_a_twin_is_the_same_network_from_random_weights(fedoras: Any) -> None:
    aggregator, again = fedoras(), fedoras()
    overrides = {"held_out": 0.1, "augment": "none"}
    for each in (aggregator, again):
        (item,) = each.assign(9, np.array([2]))
        assert item.model == "tier1_twin" and item.overrides == {**overrides, "local_epochs": 1, "batch_size": 32}
    one, other = aggregator.pool["tier1_twin"], aggregator.pool["tier1"]
    assert one.spec == other.spec and not equal(one.state, other.state) and equal(one.state, again.pool[one.key].state)
    assert list(aggregator.evaluation_plan().named) == ["tier1", "tier2", "tier1_twin"]


def test_a_twin_trains_as_a_model_that_is_fine_tuned_but_from_the_supernets_rate(fedoras: Any) -> None:
    """The public code's end2end: finetuneclient, num_rounds_end2end, init_lr_end2end, clients_per_round_end2end."""
    aggregator = fedoras(twin_rounds=5, finetune_clients=2)
    first = aggregator.args.learning_rate
    rates = [aggregator.learning_rate(round) for round in (9, 11, 13)]
    np.testing.assert_allclose(rates, [first, 0.55 * first, 0.1 * first])
    assert aggregator.candidates(3)[1] == 2 and aggregator.candidates(9)[1] == min(6, aggregator.args.num_participants)
    other = fedoras(twin_rounds=5, twin_lr=0.5, twin_lr_end=0.2, twin_epochs=3, twin_batch=5, finetune_batch=4)
    np.testing.assert_allclose([other.learning_rate(9), other.learning_rate(13)], [0.5, 0.1])
    overrides = other.assign(9, np.array([2]))[0].overrides
    assert (overrides["local_epochs"], overrides["batch_size"]) == (3, 5)
    assert fedoras(finetune_batch=4).assign(9, np.array([2]))[0].overrides["batch_size"] == 4


def test_a_schedule_of_steps_is_that_of_text(fedoras: Any) -> None:
    """From half of the rounds on a tenth, from three quarters on a hundredth, in fine-tuning and for twins."""
    keys = {"finetune_rounds": 8, "finetune_lr": 1.0, "twin_rounds": 4, "twin_lr": 2.0}
    aggregator = fedoras(finetune_schedule="steps", **keys)
    expected = [1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01]
    np.testing.assert_allclose([aggregator.learning_rate(round) for round in range(3, 11)], expected)
    np.testing.assert_allclose([aggregator.learning_rate(round) for round in range(19, 23)], [2, 0.2, 0.02, 0.02])
    assert fedoras(finetune_schedule="steps", **{**keys, "finetune_rounds": 1}).learning_rate(3) == 1.0
    stage = Stage("finetune", 8, 8)
    for text, schedule, last in ((True, None, 0.01), (False, None, 0.1), (True, "cosine", 0.1)):
        params = FedorASParams(finetune_lr=1.0, finetune_schedule=schedule)
        tuning = FineTuning(ModelPool(), params, 1, JobKeys(0.1, "none", text))
        assert tuning.learning_rate(stage) == pytest.approx(last)


@pytest.mark.parametrize(
    ("job", "augment", "seen"),
    [("rand_flip_crop", None, "flip_crop"), ("rand_flip_crop", "rand_flip_crop", "rand_flip_crop"),
     ("flip", None, "flip"), ("speech", None, "speech"), ("speech", "none", "none"), ("none", None, "none")],
)  # fmt: skip
def test_stage_3_sees_pictures_without_rand_augment(job: str, augment: Any, seen: str) -> None:
    params = FedorASParams(finetune_augment=augment)
    pool = ModelPool()
    spec = models.named_spec("cnn_tiny_smallest", (3, 32, 32), 10)
    pool.add("tier1", spec, models.initial_state(spec, 1))
    tuning = FineTuning(pool, params, 1, JobKeys(0.1, job, False))
    for name in ("finetune", "twin"):
        (item,) = tuning.assign(Stage(name, 1, 1), np.array([1]))
        assert item.overrides["augment"] == seen
    if job in ("none", "speech"):
        with pytest.raises(UserError, match=f"finetune_augment is flip and augment is {job}: set augment"):
            FineTuning(pool, FedorASParams(finetune_augment="flip"), 1, JobKeys(0.1, job, False))
        FineTuning(pool, FedorASParams(finetune_augment="flip", finetune_rounds=0), 1, JobKeys(0.1, job, False))


class Executors:
    """Stands for the dispatcher: judges every path by a number of its own, or fails."""

    def __init__(self, aggregator: Any, broken: int = -1) -> None:
        self.aggregator, self.broken, self.units = aggregator, broken, []
        aggregator.dispatcher = SimpleNamespace(answers=self.run)
        aggregator.make_unit = lambda event, models, **header: SimpleNamespace(header=header, models=models)
        aggregator.population = SimpleNamespace(computation_ms=np.full(6, 10.0), communication_kbps=np.full(6, 1000.0))

    def run(self, units: list[Any]) -> list[Any]:
        self.units += units
        return [({}, {"figures": self.figures(unit.header)} if index != self.broken else {})
                for index, unit in enumerate(units)]  # fmt: skip

    def figures(self, header: dict[str, Any]) -> bytes:
        clients = header["clients"] or [None]
        judges = header["judges"] or [[1] * len(header["paths"])]
        good = [
            [
                count * (len(path[0]) % 3) if client is None or client != 4 else 0
                for path, count in zip(header["paths"], row, strict=True)
            ]
            for client, row in zip(clients, judges, strict=True)
        ]
        correct = np.array(good, dtype=np.float64).reshape(-1)
        return figures_section(np.stack([correct, correct, correct], axis=1))


def test_clients_judge_the_paths_that_they_can_run(fedoras: Any) -> None:
    aggregator = fedoras(evaluation="federated", evaluation_rounds=1, unsupported=[[], ["dsconv3"]], val_ratio=0.2)
    aggregator.args.num_participants = 6
    executors, scorer = Executors(aggregator), aggregator.path_scorer
    scores = scorer(0, 1, PATHS)
    headers = [unit.header for unit in executors.units]
    judged = {
        client: row for header in headers for client, row in zip(header["clients"], header["judges"], strict=True)
    }
    dear = path_macs_of(aggregator, PATHS[1]) > 0.12e6
    assert dear and judged == {client: [int(client < 4), int(client > 3)] for client in range(1, 7)}
    assert scores.shape == (2,) and np.isfinite(scores).all()
    assert scorer.spent["download_bytes"] > 0 and scorer.spent["seconds"] > 0 and len(aggregator.pool) == 3
    assert np.array_equal(scores, scorer(0, 1, PATHS))


def test_a_path_has_a_judge_unless_nobody_has_its_operators(fedoras: Any) -> None:
    """Tier 1 is clients 1 to 3, of whom one is drawn where anyone may be."""
    paths = [("identity", "dsconv3", "conv1"), ("conv1", "conv1", "identity")]
    aggregator = fedoras(evaluation="federated", evaluation_rounds=1, unsupported=[[], ["dsconv3"]], val_ratio=0.2)
    aggregator.args.num_participants = 1
    executors, scorer = Executors(aggregator), aggregator.path_scorer
    for generation in range(1, 9):
        assert all(np.isfinite(scorer(0, generation, paths)))
    sent = {client for unit in executors.units for client in unit.header["clients"]}
    assert max(sent) < 4
    scorer(0, 9, paths[:1])
    assert executors.units[-1].header["clients"][0] < 4 and scorer.without_judge(0) == 0
    scorer.held_out[:3] = 0
    scores = scorer(0, 10, paths)
    assert np.isnan(scores[0]) and np.isfinite(scores[1]) and scorer.without_judge(0) == 1
    assert "nobody can judge 1 of 2 paths" in str(aggregator.events[-1]["message"])
    units, rows = len(executors.units), len(scorer.generations)
    assert np.isnan(scorer(0, 11, paths[:1])).all() and len(executors.units) == units
    assert scorer.without_judge(0) == 2 and scorer.generations[rows]["clients"] == 0
    assert all("unjudged" not in row for row in scorer.generations[:-2])


def path_macs_of(aggregator: Any, path: tuple[str, ...]) -> float:
    costs = aggregator.training.costs[0]
    return float(costs.fixed_macs + sum(costs.macs[layer, column] for layer, column in enumerate(costs.indices(path))))


def test_what_cannot_be_judged_has_no_score(fedoras: Any) -> None:
    aggregator = fedoras()
    Executors(aggregator, broken=1)
    scores = aggregator.path_scorer(0, 1, PATHS)
    assert np.isfinite(scores[0]) and np.isnan(scores[1])
    assert "1 paths are not judged" in str(aggregator.events[-1]["message"])


def test_judgements_that_cannot_be_are_refused() -> None:
    counts = np.array([[3, 0]])
    good = np.array([[2.0, 3.0, 1.5], [0.0, 0.0, 0.0]])
    assert read_figures({"figures": figures_section(good)}, counts).shape == (1, 2, len(COLUMNS))
    for row, value in ((0, 4.0), (0, -1.0), (0, 0.5), (0, np.nan), (1, 1.0)):
        bad = good.copy()
        bad[row, 0] = value
        with pytest.raises(wire.WireError):
            read_figures({"figures": figures_section(bad)}, counts)
    with pytest.raises(wire.WireError, match="1 judgements, 2 were asked for"):
        read_figures({"figures": figures_section(good[:1])}, counts)
    with pytest.raises(wire.WireError, match="one section"):
        read_figures({}, counts)


def test_clients_who_judge_count_beside_those_who_train() -> None:
    history = records(3)
    figures = stage_figures(Plan(supernet=1, finetune=1, twin=0, tiers=1), history, [{"clients": 5}, {"clients": 7}])
    assert [(each["stage"], each["judging_clients"]) for each in figures] == [
        ("supernet training", 0), ("search", 12), ("fine-tuning", 0)
    ]  # fmt: skip
    assert [each["participations"] for each in figures] == [len(record.participants) for record in history]


def test_accuracies_are_of_the_tiers_own_clients() -> None:
    correct, count = np.array([1.0, 4.0, np.nan, 2.0]), np.array([4, 4, 4, 0])
    evaluation = Evaluation(1, ["a"] * 4, correct, correct, correct, count, {"a": (0.7, 1.0)}, {"a": correct})
    figures = accuracies(evaluation, "a", np.array([True, True, True, True]))
    assert (figures["accuracy"], figures["client_mean"], figures["client_worst"]) == (0.7, 0.625, 0.25)
    assert figures["client_std"] == pytest.approx(0.375)
    assert accuracies(evaluation, "a", np.array([False, False, False, True]))["client_mean"] is None
    assert accuracies(None, "a", np.ones(4, bool))["accuracy"] is None


def test_each_client_holds_out_samples_to_judge_with(fedoras: Any) -> None:
    scorer = fedoras().path_scorer
    assert isinstance(scorer, PathScorer) and scorer.held_out.tolist() == [1, 2, 3, 4, 5, 6]


def test_the_perplexity_of_a_job_that_diverged_is_infinite() -> None:
    assert perplexity_of(2.0) == math.exp(2.0) and perplexity_of(800.0) == math.inf
