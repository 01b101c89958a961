"""BatchNorm's statistics re-estimated before models are served, in a pass over clients' training data.

HeteroFL (Diao et al., ICLR 2021, section 3, "static batch normalization") trains with each batch's own
statistics and queries the clients once for those of testing. Here each client's data pass through the network
in training mode, and every layer's count, sum and sum of squares are added up over clients: the mean and variance of
all samples at once. HeteroFL's public code averages batches' variances instead, on the server and from the clients' raw
data; over clients whose data differ, that leaves out how their means differ.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import EvaluationPlan, State, members
from fedscale_ext.models.layers.dropout import Dropout
from fedscale_ext.models.layers.hooks import hooked
from fedscale_ext.tasks.answers.update_checks import Rejected, checked_tensors
from fedscale_ext.tasks.evaluate import served
from fedscale_ext.tasks.evaluation_figures import pieces
from fedscale_ext.tasks.kind import Answer, Dispatcher, JobContext, Kind, Worker
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Dropped, Unit, UnitHeader

EVENT = "statistics"  # of a unit that measures them, in addition to FedScale's events
SUMS = "sums"  # name of the section that holds them
_DROPPED_PATHS = ("StochasticDepth", "DropPath")  # of torchvision and timm
_MEAN, _VARIANCE = "running_mean", "running_var"
_COUNT, _SUM, _SQUARES = "count", "sum", "squares"


def layers(state: State) -> list[str]:
    """Return the names of the layers of a model's state that have running statistics."""
    return [name.removesuffix(f".{_MEAN}") for name in state if name.endswith(f".{_MEAN}")]


def template(state: State) -> State:
    """Return zeros of the names, shapes and types that :func:`sums` returns for a model."""
    zeros: State = {}
    for layer in layers(state):
        vector = torch.zeros_like(state[f"{layer}.{_MEAN}"], dtype=torch.float64)
        zeros |= {f"{layer}.{_COUNT}": torch.zeros((), dtype=torch.float64)}
        zeros |= {f"{layer}.{_SUM}": vector, f"{layer}.{_SQUARES}": vector.clone()}
    return zeros


@torch.no_grad()
def sums(module: nn.Module, batches: Iterable[Tensor]) -> State:
    """Return count [], sum [C] and sum of squares [C] of each BatchNorm layer's inputs, float64.

    They run over all positions of all samples. ``batches`` [B, C, H, W] pass through the module in training mode:
    each is normalised by itself. Layers that drop at random do not: these statistics are for tests, which drop nothing.
    """
    module.train()
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd | Dropout) or type(part).__name__ in _DROPPED_PATHS:
            part.eval()
    total = template(module.state_dict())  # on the module's device: a GPU that is asked for a value waits for its work

    def note(layer: str, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        values = inputs[0].detach().movedim(1, 0).flatten(1)
        total[f"{layer}.{_COUNT}"] += values.shape[1]
        total[f"{layer}.{_SUM}"] += values.sum(1, dtype=torch.float64)
        total[f"{layer}.{_SQUARES}"] += values.square().sum(1, dtype=torch.float64)

    names = layers(module.state_dict())
    with hooked(module.get_submodule(name).register_forward_pre_hook(partial(note, name)) for name in names):
        for batch in batches if names else ():
            module(batch)
    return {name: tensor.cpu() for name, tensor in total.items()}


def in_batches(rows: np.ndarray, most: int) -> list[np.ndarray]:
    """Split the row numbers of one client into batches of about equal size.

    A single sample gives no batch: it has no variance.
    """
    parts = -(-len(rows) // most)
    return np.array_split(rows, max(1, min(parts, len(rows) // 2))) if len(rows) > 1 else []


def with_statistics(state: State, total: State) -> State:
    """Return the state with running statistics from sums over clients.

    The variance is unbiased, as BatchNorm's is. Layers that saw no sample keep their statistics.
    """
    result = dict(state)
    for layer in layers(state):
        count = float(total[f"{layer}.{_COUNT}"])
        if count < 2:
            continue
        mean = total[f"{layer}.{_SUM}"] / count
        variance = (total[f"{layer}.{_SQUARES}"] / count - mean.square()).clamp(min=0.0) * (count / (count - 1))
        for name, value in ((_MEAN, mean), (_VARIANCE, variance)):
            result[f"{layer}.{name}"] = value.to(state[f"{layer}.{name}"].dtype)
    return result


def reestimate(dispatcher: Dispatcher, round: int, plan: EvaluationPlan) -> None:
    """Re-estimate the BatchNorm statistics of every model that is about to be tested.

    They come from the clients that can compute the model, or that are served it nevertheless. (Methods have a
    smallest model for all clients, or ignore capacities.)
    """
    job = dispatcher.job
    pool, task = job.pool, job.task
    served_to: dict[str, np.ndarray] = {}  # bool [clients]
    keys, indices = served(plan)
    for key in [*keys, *plan.named.values()]:
        mask = indices == keys.index(key) if key in keys else np.zeros(task.num_clients, dtype=bool)
        for member in members(key):
            served_to[member] = served_to.get(member, False) | mask
    requests = []
    for key, mask in served_to.items():
        if layers(pool[key].state):
            clients = _measured_clients(job, round, key, mask)
            requests += [(key, part.tolist()) for part in pieces(clients, task.train_sizes[clients - 1])]
    units = [job.make_unit(EVENT, [key], model=key, clients=clients) for key, clients in requests]
    totals: dict[str, State] = {}
    for (key, clients), answer in zip(requests, dispatcher.answers(units), strict=True):
        like = template(pool[key].state)
        fault = answer.reason if isinstance(answer, Dropped) else None
        if not isinstance(answer, Dropped):
            _, sections = answer
            try:
                total = totals.setdefault(key, like)
                for name, value in checked_tensors(sections[SUMS], like).items():
                    total[name] = total[name] + value
            except Rejected as reason:
                fault = str(reason)
        if fault is not None:
            job.notice(f"round {round}: statistics of {len(clients)} clients are left out: {fault}")
    for key, total in totals.items():
        pool.amend(key, with_statistics(pool[key].state, total))


def _measured_clients(job: JobContext, round: int, key: str, served_to: np.ndarray) -> np.ndarray:
    """Numbers of the clients whose data pass through a model, ascending: such as can compute it or are served
    it (bool [clients]), if there are any."""
    able = job.eligible & (served_to | (job.capacity >= job.pool[key].cost.forward_macs))
    indices = np.flatnonzero(able if able.any() else job.eligible)
    most = job.config.job.bn_statistics_clients
    if len(indices) > most:
        indices = stream(job.config.job.seed, round, key, "statistics").choice(indices, most, replace=False)
    return np.sort(indices) + 1


def client_sums(worker: Worker, module: nn.Module, clients: Sequence[int]) -> State:
    """Return :func:`sums` of ``module`` over the clients' training samples."""
    # a network of one's own may drop at random nevertheless: what it draws must not depend on what was drawn before
    torch.manual_seed(int(stream(worker.seed, *clients, EVENT).integers(2**62)))
    rows = [part for client in clients for part in in_batches(worker.data.train_rows(client), worker.test_batch)]
    return sums(module, map(worker.device_inputs, rows))


def measure_on_client(worker: Worker, module: nn.Module, client: int) -> None:
    """Replace the running statistics of a network that only this client has by those of its training samples."""
    module.load_state_dict(with_statistics(module.state_dict(), client_sums(worker, module, [client])))


class BatchNormStatistics(Kind):
    """Sums of the inputs of a model's BatchNorm layers over the training samples of the unit's clients."""

    event: ClassVar[str] = EVENT

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        with worker.watch("statistics"):
            total = client_sums(worker, worker.bench.module(header["model"]), header["clients"])
        return {}, {SUMS: wire.tensors_to_bytes(total)}

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, wire.Section], test_sizes: np.ndarray
    ) -> None:
        if sections.keys() != {SUMS}:
            raise wire.WireError("a measurement of statistics has one section, sums")
