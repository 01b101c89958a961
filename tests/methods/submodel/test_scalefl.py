"""ScaleFL: its loss, its levels, and jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from job_results import assert_equal, run_job
from training.cohorts import both_ways, samples

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.submodel.depthfl import DepthFLClient
from fedscale_ext.methods.submodel.scalefl import ScaleFLAggregator, ScaleFLClient
from fedscale_ext.models.multi_exit.family import prefix
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.server.method_base.method_traits import reestimates_statistics
from fedscale_ext.submodels import count_mean, narrowed
from fedscale_ext.training.cohort import CohortStep
from fedscale_ext.training.resident import Cohort
from methods.harness import CLASSES, equal, server, trained_states, updates_for

from .exit_models import divergence, logits, looped, network

SHAPE = (1, 16, 16)
LEVELS: dict[str, Any] = {"widths": (0.5, 0.75, 1.0), "exits": (1, 2, 3)}
SPEC = models.named_spec("multi_exit_vgg_small", SHAPE, CLASSES)
SPECS = [prefix(narrowed(SPEC, width), exits) for width, exits in ((0.5, 1), (0.75, 2), (1.0, 3))]
MACS = [models.cost(spec).forward_macs for spec in SPECS]
KD = {"kd_gamma": 0.3, "kd_temperature": 3.0, "kd_detach": False}


def scalefl(**keys: Any) -> Any:
    params = {"model": "multi_exit_vgg_small", **LEVELS, "capacity": [MACS[index // 2] for index in range(6)], **keys}
    return server(ScaleFLAggregator, "scalefl", shape=SHAPE, **params)


# ---- the loss ----


@pytest.mark.parametrize("exits", [1, 2, 4])
@pytest.mark.parametrize("kd", [{}, KD, {**KD, "kd_detach": True}])
def test_the_loss_is_the_loop(exits: int, kd: dict[str, Any]) -> None:
    output, labels = logits(exits)

    def loss(each: torch.Tensor, entropy: Any) -> torch.Tensor:
        total, teacher = torch.zeros(()), (each[-1] / 3).softmax(-1)
        for j in range(exits):
            total = total + (j + 1) * entropy(j)
            if kd and j < exits - 1:
                target = teacher.detach() if kd["kd_detach"] else teacher
                total = total + (j + 1) * 0.3 * 9 * divergence(target, (each[j] / 3).softmax(-1))
        return total / (exits * (exits + 1) / 2)

    losses, expected = (
        ScaleFLClient(client_settings(**kd), NO_BENCH).losses(output, labels),
        looped(output, labels, loss),
    )
    torch.testing.assert_close(losses, expected, atol=1e-12, rtol=1e-12)
    for one, other in zip(*(torch.autograd.grad(x.sum(), output) for x in (losses, expected)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_the_deepest_exit_learns_from_others_unless_it_is_detached() -> None:
    output, labels = logits(3)

    def gradient(**kd: Any) -> torch.Tensor:
        loss = ScaleFLClient(client_settings(**kd), NO_BENCH).losses(output, labels).sum()
        return torch.autograd.grad(loss, output)[0][..., -1, :]

    torch.testing.assert_close(gradient(**{**KD, "kd_detach": True}), gradient(), atol=1e-12, rtol=1e-12)
    assert float((gradient(**KD) - gradient()).abs().max()) > 1e-2


def test_steps_of_other_losses_are_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorded:
        """A recording that replays nothing."""

        def __init__(self, step: CohortStep, x: torch.Tensor, y: torch.Tensor) -> None:
            self.restart = step.restart

        def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.ones(y.t().shape)

    monkeypatch.setattr("fedscale_ext.training.cuda_graph.RecordedStep", Recorded)
    module = models.build(network("mlp"))
    stack = stacked(models.build(network("mlp")), (1, 8, 8))
    assert stack is not None
    cohort = Cohort(stack, module, (1, 8, 8), 2, torch.device("cpu"), channels_last=False)
    cohort.records = True
    data = [samples(client, 10, torch.float32) for client in range(2)]
    seen = []
    for trainer, kd in [(ScaleFLClient, {}), (ScaleFLClient, KD), (ScaleFLClient, {**KD, "kd_gamma": 0.1}),
                        (ScaleFLClient, KD), (DepthFLClient, {}), (DepthFLClient, {"consistency": 0.1})]:  # fmt: skip
        confs = [client_settings(client, local_steps=1, **kd) for client in range(2)]
        cohort.restore(module.state_dict())
        trainer(confs[0], NO_BENCH).train_cohort(data, cohort, confs)
        seen.append(len(cohort.recorded))
    assert seen == [1, 2, 3, 3, 4, 4]  # the weight of DepthFL's divergences changes in each round: never recorded


@pytest.mark.parametrize("backbone", ["cnn", "mlp"])
def test_cohorts_equal_clients_one_after_another(backbone: str) -> None:
    def build() -> torch.nn.Module:
        return models.build(network(backbone))

    assert both_ways(build, [12, 17, 3], trainer=ScaleFLClient, local_steps=5, **KD) < 1e-9


# ---- levels and rounds ----


def test_levels_are_narrower_and_less_deep() -> None:
    aggregator = scalefl()
    assert [item.model for item in aggregator.assign(1, np.arange(1, 7))] == [f"level{n}" for n in (1, 1, 2, 2, 3, 3)]
    assert [aggregator.pool[f"level{n}"].spec for n in (1, 2, 3)] == SPECS and aggregator.whole == "level3"
    whole = aggregator.pool["level3"].state
    for number in (1, 2):
        state = aggregator.pool[f"level{number}"].state
        assert {name.split(".")[0] for name in state if name.startswith("exit")} == {
            f"exit{e}" for e in range(1, number + 1)
        }
        for name, tensor in state.items():
            assert torch.equal(tensor, whole[name][tuple(slice(side) for side in tensor.shape)])
    assert list(aggregator.evaluation_plan().serve)[:3] == ["level1", "level1", "level2"]
    assert aggregator.evaluation_plan().named == {"global": "level3"}
    assert reestimates_statistics(type(aggregator), aggregator.config)
    assert aggregator.smallest_spec() == SPECS[0]


def test_groups_and_shares() -> None:
    aggregator = scalefl(groups=[3, 1, 2], capacity=[9.0, 1e15, 3.0, 5.0, 1e14, 7.0])
    assert (aggregator.level_of == [1, 0, 2, 2, 0, 2]).all()
    assert (scalefl(levels="fix", shares=[1.0, 0.0, 0.0]).level_of == 2).all()
    drawn = scalefl(levels="fix", capacity=[1e15] * 6).level_of
    assert len(set(drawn.tolist())) > 1


def test_each_entry_becomes_the_mean_over_those_who_hold_it() -> None:
    aggregator = scalefl()
    items = aggregator.assign(1, np.array([1, 3, 5, 6]))
    updates = updates_for(aggregator, items)
    old, states = aggregator.pool["level3"].state, trained_states(aggregator, 1, updates)
    parts = [(states[u.client], p.covered if (p := aggregator.pool[u.item.model].part) else None, 1.0) for u in updates]
    expected = count_mean(old, parts)
    assert {aggregator.weight(item) for item in items} == {1.0}
    aggregator.aggregate(1, updates, {"level3": expected})
    new = aggregator.pool["level3"].state
    assert equal(new, expected)
    name = "block1.conv1.weight"
    by_hand = sum(states[client][name][:4, :4] for client in (1, 3, 5, 6)) / 4
    torch.testing.assert_close(new[name][:4, :4], by_hand)
    torch.testing.assert_close(
        new["exit3.linear.bias"], (states[5]["exit3.linear.bias"] + states[6]["exit3.linear.bias"]) / 2
    )
    assert scalefl(weighted=True).weight(items[0]) == 10.0


def test_distillation_begins_after_a_quarter_of_the_rounds() -> None:
    aggregator = scalefl(self_kd=True, gamma=0.2, detach=True, rounds=8)
    for round, distils in ((1, False), (2, False), (3, True)):
        objectives = {item.model: dict(item.objective) for item in aggregator.assign(round, np.arange(1, 7))}
        kd = {"kd_gamma": 0.2, "kd_temperature": 3.0, "kd_detach": True} if distils else {}
        assert objectives == {"level1": {}, "level2": kd, "level3": kd}
    assert not any(item.objective for item in scalefl(rounds=8).assign(8, np.arange(1, 7)))


def test_distillation_begins_after_a_quarter_of_the_budget_that_ends_the_job() -> None:
    aggregator = scalefl(self_kd=True, gamma=0.2, rounds=1000, stop_macs=1e6)
    for spent, distils in ((2.4e5, False), (2.5e5, True)):
        aggregator.spent_macs = spent
        items = aggregator.assign(3, np.arange(1, 7))
        assert [bool(item.objective) for item in items if item.model == "level3"] == [distils] * 2
    aggregator = scalefl(self_kd=True, kd_after=1.0, rounds=1000, stop_macs=1e6)
    aggregator.spent_macs = 2e6
    assert not any(item.objective for item in aggregator.assign(3, np.arange(1, 7)))


def test_a_level_without_clients_is_told() -> None:
    messages = [event["message"] for event in scalefl(groups=[0, 6, 0]).events]
    assert sum("no client is on level" in message for message in messages) == 2
    with pytest.raises(UserError, match=r"no client is on level .* so that the whole network would not be trained"):
        scalefl(capacity=[MACS[0]] * 6)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"widths": (0.7, 0.7, 0.75, 1.0), "exits": (1, 2, 3, 4)}, r"exits is \[1, 2, 3, 4\] and model .* has 3 exits"),
        ({"exits": (1, 3)}, "they must be as many, one for each level"),
        ({"exits": (), "widths": ()}, "as many, one for each level"),
        ({"exits": (2, 1, 3)}, "it must rise from 1 or more"),
        ({"exits": (0, 1, 3)}, "it must rise from 1 or more"),
        ({"widths": (0.5, 0.4, 1.0)}, "never fall, and end with 1"),
        ({"widths": (0.0, 0.4, 1.0)}, "above 0"),
        ({"widths": (0.5, 0.5, 0.5)}, "end with 1"),
        ({"gamma": 0.0}, "gamma is 0.0; it must be above 0"),
        ({"temperature": -1.0}, "temperature is -1.0; it must be above 0"),
        ({"kd_after": 1.5}, "from 0 to 1"),
        ({"groups": [3, 3]}, "a number of clients for each of 3 levels"),
        ({"levels": "groups"}, "scalefl.levels is groups; give their sizes"),
        ({"groups": [2, 2, 2], "levels": "fix"}, "groups is given and scalefl.levels is fix"),
        ({"levels": "fix", "shares": [1.0, 1.0]}, "a share, not negative, for each of 3 levels"),
        ({"levels": "fix", "shares": [1.0, -1.0, 1.0]}, "not negative"),
        ({"shares": [0.5, 0.3, 0.2]}, "scalefl.shares is given and scalefl.levels is capacity, which draws nothing"),
        ({"model": "nasbench201_base"}, "needs a network with several exits"),
    ],
)
def test_bad_hyperparameters_are_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        scalefl(**keys)


# ---- jobs ----


def run(job_file: Path, name: str, at_once: bool = True, **keys: Any) -> dict[str, Any]:
    """A whole job's results; ``at_once``: in this process."""
    levels = {"scalefl.widths": [0.5, 0.75, 1.0], "scalefl.exits": [1, 2, 3], "scalefl.groups": [3, 2, 2]}
    kd = {"scalefl.self_kd": True, "scalefl.kd_after": 0.0}
    settings = {"method": "scalefl", "model": "multi_exit_cnn3", "num_participants": 7, **levels, **kd, **keys}
    return run_job(job_file, name, at_once, **settings)


def test_a_job_resumes_to_the_same_result_and_trains_in_cohorts(job_file: Path) -> None:
    unbroken = run(job_file, "unbroken", at_once=False, rounds=2)
    run(job_file, "broken", rounds=1)
    assert_equal(run(job_file, "broken", at_once=False, rounds=2, resume=True), unbroken)
    late = {"scalefl.kd_after": 0.5}
    run(job_file, "late", rounds=1, **late)
    with pytest.raises(
        UserError, match=r"^rounds was 1 and is 2, which scalefl.kd_after: 0.5 follows: set it back, or"
    ):
        run(job_file, "late", rounds=2, resume=True, **late)
    together = run(job_file, "together", rounds=2, cohort_size=4, unit_size=4)
    state = unbroken["models"]["level3"][1]
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, together["models"]["level3"][1][name], atol=1e-3, rtol=1e-3)


def test_distillation_begins_after_its_share_of_the_rounds() -> None:
    late = scalefl(self_kd=True, kd_after=0.29, rounds=100)  # in floating point, 0.29 * 100 is below 29
    assert [bool(late.assign(round, np.array([6]))[0].objective) for round in (28, 29, 30)] == [False, False, True]


def test_distillation_that_never_begins_is_told() -> None:
    sentence = "exits never learn from the deepest one: scalefl.kd_after is 1, all rounds"
    assert sentence in scalefl(self_kd=True, kd_after=1.0).notices
    assert sentence not in scalefl(self_kd=True, kd_after=0.9).notices and sentence not in scalefl(kd_after=1.0).notices
