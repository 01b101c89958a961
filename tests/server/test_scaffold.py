"""SCAFFOLD against a plain loop, and what the aggregator keeps of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from job_results import assert_equal, result
from torch.func import functional_call
from torch.nn import functional
from training.cohorts import FAMILIES, SHAPE, both_ways

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import WorkItem
from fedscale_ext.data.store import open_data_set
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.server.privacy import check_options
from fedscale_ext.server.scaffold import ControlVariates
from fedscale_ext.submodels import narrowed, window
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.training import scaffold as variates
from fedscale_ext.training.optimizers.sgd import Sgd
from fedscale_ext.util.tensor_files import read_tensors
from server.test_jobs import command

State = dict[str, torch.Tensor]
# more samples than any client has: each step sees all of them, in whatever order
JOB = {"model": "cnn_small", "control_variates": True, "num_participants": 4, "batch_size": 40,
       "learning_rate": 0.02, "client_weight_decay": 0.0, "client_momentum": 0.0}  # fmt: skip


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})
    return result(job_file.parent / "logs" / name / "logs")


def scaffold(
    spec: ModelSpec, data: Any, rounds: list[list[int]], lr: float, steps: int, x: State
) -> tuple[State, State, dict[int, State]]:
    """Algorithm 1, option II, in float64, with clients weighed by their samples: x, c, c_i."""
    module = models.build(spec).double()
    sizes = dict(enumerate(data.train_sizes.tolist(), 1))
    everybody = sum(sizes.values())
    x = {name: tensor.double() for name, tensor in x.items()}
    zero = {name: torch.zeros_like(tensor) for name, tensor in x.items()}
    c, c_i = dict(zero), {client: dict(zero) for client in sizes}

    def gradient(y: State, client: int) -> State:
        samples, labels = data.tensors(data.train_rows(client))
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in y.items()}
        loss = functional.cross_entropy(functional_call(module, leaves, (samples.double(),)), labels)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    for participants in rounds:
        trained, new = {}, {}
        for client in participants:
            y = dict(x)
            for _ in range(steps):
                g = gradient(y, client)
                y = {name: y[name] - lr * (g[name] - c_i[client][name] + c[name]) for name in y}
            trained[client] = y
            new[client] = {name: c_i[client][name] - c[name] + (x[name] - y[name]) / (steps * lr) for name in x}
        weight = sum(sizes[client] for client in participants)
        x = {name: sum(sizes[k] * trained[k][name] for k in participants) / weight for name in x}
        c = {name: c[name] + sum(sizes[k] * (new[k][name] - c_i[k][name]) for k in participants) / everybody
             for name in x}  # fmt: skip
        c_i |= new
    return x, c, c_i


@pytest.mark.parametrize("keys", [{"cohort_size": 1}, {"cohort_size": 4}])
def test_a_job_is_the_plain_algorithm(job_file: Path, tiny_femnist: Path, keys: dict[str, Any]) -> None:
    done = run(job_file, "job", rounds=5, eval_interval=5, local_steps=3, **keys)
    data = open_data_set(str(tiny_femnist), "femnist", data_map_file=None, test_split=0.2, seed=1, input_shape=None)
    spec, state = done["models"]["global"]
    rounds = [entry["participants"] for entry in done["rounds"]]
    x, c, c_i = scaffold(spec, data, rounds, 0.02, 3, models.initial_state(spec, 1))
    rounding = 1e-6 if keys["cohort_size"] == 1 else 1e-5  # cohorts round differently
    assert max(float((state[name] - x[name]).abs().max()) for name in x) < rounding
    plain = run(job_file, "plain", rounds=5, eval_interval=5, local_steps=3, control_variates=False)
    assert max(float((plain["models"]["global"][1][name] - x[name]).abs().max()) for name in x) > 1e-4
    folder = job_file.parent / "logs" / "job" / "logs"
    tensors, _ = read_tensors(folder / "checkpoints" / "checkpoint-000005.safetensors")
    for name in x:
        mean = tensors[f"tensor.variate/0/total/{name}"] / float(data.train_sizes.sum())
        assert torch.allclose(mean, c[name], atol=10 * rounding), name  # changes over learning rate and steps
    for client in {client for clients in rounds for client in clients}:
        last = max(number for number, clients in enumerate(rounds, 1) if client in clients)
        mine, _ = read_tensors(folder / "variates" / "global" / f"{client}-{last:06d}.safetensors")
        assert all(torch.allclose(mine[name].double(), c_i[client][name], atol=100 * rounding) for name in x)
    for entry, other in zip(done["rounds"], plain["rounds"], strict=True):  # model and variate, there and back
        assert entry["upload_bytes"] == 2 * other["upload_bytes"]
        assert entry["download_bytes"] == 2 * other["download_bytes"]


def test_the_offset_is_added_to_the_gradient_after_clipping() -> None:
    parameter, offset = torch.zeros(2), torch.tensor([0.5, -0.5])
    steps = Sgd(0.1, 0.0, 0.0, 0.0, 1.0).begin([parameter], [offset])
    steps.step([parameter], [torch.tensor([30.0, 40.0])])
    assert torch.allclose(parameter, -0.1 * torch.tensor([0.6 + 0.5, 0.8 - 0.5]), atol=1e-6)


def test_a_cohort_with_offsets_equals_its_clients_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    module = FAMILIES["nasbench201"]()
    generator = torch.Generator().manual_seed(7)

    def settings(client: int, **changes: Any) -> Any:
        offset = {name: torch.randn(parameter.shape, generator=generator.manual_seed(client), dtype=torch.float64)
                  for name, parameter in module.named_parameters()}  # fmt: skip
        return client_settings(client, **{"local_steps": 20, "offset": offset, "learning_rate": 0.01, **changes})

    monkeypatch.setattr("training.cohorts.conf", settings)
    assert both_ways(FAMILIES["nasbench201"], [20, 20, 3], steps=[20, 8, 7]) < 1e-9
    assert both_ways(FAMILIES["nasbench201"], [20, 12], client_momentum=0.0, clip_norm=0.2) < 1e-9


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum_counts_as_what_it_adds_up_to(momentum: float) -> None:
    parameter, steps = torch.zeros(1, dtype=torch.float64), 7
    running = Sgd(0.1, momentum, 0.0, 0.0, None).begin([parameter], [torch.tensor([0.25], dtype=torch.float64)])
    for _ in range(steps):
        running.step([parameter], [torch.tensor([3.0], dtype=torch.float64)])
    offset = {"w": torch.tensor([0.25], dtype=torch.float64)}
    conf = client_settings(local_steps=steps, client_momentum=momentum, learning_rate=0.1, gradient_offset=offset)
    new = variates.new_variate(conf, {"w": torch.zeros(1, dtype=torch.float64)}, {"w": parameter[None]}, 0)
    assert new is not None and float(new["w"]) == pytest.approx(3.0)  # the client's own gradient, without the offset


def store(tmp_path: Path, weight: Callable[[WorkItem], float] = lambda item: 1.0) -> tuple[ModelPool, ControlVariates]:
    pool = ModelPool()
    spec = models.named_spec("cnn_small", SHAPE, 4)
    pool.add("whole", spec, models.initial_state(spec, 1))
    pool.add_part("half", "whole", narrowed(spec, 0.5), window(spec, 0.5))
    return pool, ControlVariates(tmp_path, pool, weight, np.ones(5, dtype=bool))


def drawn(pool: ModelPool, key: str, value: float) -> State:
    return {name: torch.full_like(pool[key].state[name], value) for name in models.parameter_names(pool[key].spec)}


def test_the_servers_variate_is_the_mean_over_all_clients(tmp_path: Path) -> None:
    pool, variates = store(tmp_path)
    items = [WorkItem(1, "whole"), WorkItem(3, "whole")]
    for round, values in ((1, (5.0, -1.0)), (2, (2.0, 3.0))):
        variates.begin(items)
        for item, value in zip(items, values, strict=True):
            variates.take(round, item, drawn(pool, "whole", value))
        variates.end_round()
    variates.begin(items)
    offset = variates.outgoing(items[0])
    # c = (2 + 3) / 5 clients, c_1 = 2; a client that never trained has none
    assert all(torch.allclose(tensor, torch.full_like(tensor, 1.0 - 2.0)) for tensor in offset.values())
    assert all(torch.allclose(tensor, torch.ones(())) for tensor in variates.outgoing(WorkItem(2, "whole")).values())


def test_a_parts_variate_lives_on_its_own_entries(tmp_path: Path) -> None:
    pool, variates = store(tmp_path)
    whole, half = WorkItem(1, "whole"), WorkItem(2, "half")
    variates.begin([whole, half])
    variates.take(1, whole, drawn(pool, "whole", 4.0))
    variates.take(1, half, drawn(pool, "half", 2.0))
    variates.end_round()
    variates.begin([whole, half])
    name = next(name for name, tensor in pool["whole"].state.items() if tensor.dim() == 4)
    mine, theirs = variates.outgoing(whole)[name], variates.outgoing(half)[name]
    assert theirs.shape == pool["half"].state[name].shape
    # both hold an entry: (4 + 2) / 5 clients; half of those seen hold the others: 4 / (5 / 2)
    assert torch.allclose(theirs, torch.full_like(theirs, 6 / 5 - 2))
    assert float(mine.max()) == pytest.approx(4 / 2.5 - 4) and float(mine.min()) == pytest.approx(6 / 5 - 4)
    stored, _ = read_tensors(tmp_path / "variates" / "whole" / "2-000001.safetensors")
    assert int((~stored[name].isnan()).sum()) == theirs.numel()


def test_files_that_no_checkpoint_needs_go(tmp_path: Path) -> None:
    pool, variates = store(tmp_path)
    item = WorkItem(1, "whole")
    for round in range(1, 7):
        variates.begin([item])
        variates.take(round, item, drawn(pool, "whole", float(round)))
        variates.end_round()
    variates.files.drop_unneeded([2, 4, 6])
    names = sorted(path.name for path in (tmp_path / "variates" / "whole").iterdir())
    assert names == ["1-000002.safetensors", "1-000004.safetensors", "1-000006.safetensors"]
    variates.files.drop_after(5)
    assert sorted(path.name for path in (tmp_path / "variates" / "whole").iterdir()) == names[:2]


@pytest.mark.parametrize("keys", [{"method": "fedrolex", "client_momentum": 0.9}, {"method": "qfedavg"}])
def test_a_resumed_job_goes_on_bit_for_bit(job_file: Path, keys: dict[str, Any]) -> None:
    keys = {**keys, "eval_interval": 4, "batch_size": 5, "cohort_size": 2, "checkpoint_interval": 2}
    unbroken = run(job_file, "job", rounds=4, **keys)
    folder = job_file.parent / "logs" / "job" / "logs"
    assert (folder / "variates").is_dir()
    (folder / "checkpoints" / "checkpoint-000004.safetensors").unlink()  # as if killed in round 4
    assert_equal(unbroken, run(job_file, "job", rounds=4, resume=True, **keys))
    for path in (folder / "variates").glob("*/*-00000[12].safetensors"):
        path.unlink()
    with pytest.raises(UserError, match="is missing; the job cannot continue without it"):
        run(job_file, "job", rounds=4, resume_from=2, **keys)


def test_executors_play_no_part(job_file: Path) -> None:
    keys = {**JOB, "method": "fedrolex", "batch_size": 5, "cohort_size": 2, "unit_size": 1, "num_participants": 6,
            "personalise_epochs": 1}  # fmt: skip
    here = run(job_file, "here", **keys)
    assert_equal(here, command(job_file, "there", **keys, worker_ips="localhost:[4]"))


def test_units_fit_into_messages_and_what_cannot_is_told(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.server.round.dispatcher._HEADERS", 2**20 - 3 * 220_000)
    run(job_file, "small", rounds=1, max_message_mb=1, cohort_size=4)
    monkeypatch.setattr("fedscale_ext.server.round.dispatcher._HEADERS", 2**20)
    with pytest.raises(UserError, match="raise max_message_mb"):
        run(job_file, "none", rounds=1, max_message_mb=1)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"client_optimizer": "adam"}, "client_optimizer: sgd only"),
        ({"dp_noise_multiplier": 1.0}, "control_variates tells of clients' data what dp_noise_multiplier does not"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    config = make_config({}, {"control_variates": True, **keys})
    with pytest.raises(UserError) as raised:
        check_options(config, FedAvgAggregator)
        check_local_training(config, FedAvgAggregator)
    assert sentence in str(raised.value)
