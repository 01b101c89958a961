"""Personalized accuracy: each client fine-tunes a copy of what it is served on its own data, and is tested on that.

Done once, for the final models (``personalise_epochs``): it costs as much as a round of all clients. A client trains
as its method's clients do, by the job's keys, optimizer and the last round's learning rate. What a round's work item
brings (HeteroFL's mask, FedProx's mu) plays no part. It draws from a stream of its own, so that neither the number of
executors nor earlier evaluations play a part. Of an ensemble, each member is tuned. Where BatchNorm's statistics are
re-estimated before tests, those of a tuned copy are of its client's training samples.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedscale_ext.core.types import Evaluation, WorkItem, members
from fedscale_ext.tasks.answers.answer_checks import check_missing, check_test_figures
from fedscale_ext.tasks.answers.client_answers import gather_tests
from fedscale_ext.tasks.bn_statistics import measure_on_client
from fedscale_ext.tasks.evaluation_figures import (
    COLUMNS,
    MASK,
    classes_present,
    client_figures,
    figures_section,
    outputs,
)
from fedscale_ext.tasks.kind import Answer, Dispatcher, Kind, Worker
from fedscale_ext.transport.units import Unit, UnitHeader
from fedscale_ext.transport.wire import Section

EVENT = "personalise"  # of a unit that does it, a further event; and the round in its streams' keys


def plan(dispatcher: Dispatcher, round: int, serve: Sequence[str], epochs: int) -> list[Unit]:
    """Plan units of clients that are served one model, or one ensemble."""
    job = dispatcher.job
    tested = np.flatnonzero((job.task.test_sizes > 0) & (job.task.train_sizes > 0)) + 1
    by_key: dict[str, list[int]] = {}
    for client in tested.tolist():
        by_key.setdefault(serve[client - 1], []).append(client)
    overrides = {"local_epochs": epochs}
    sizes = dispatcher.cohort_sizes_of([WorkItem(1, member) for key in by_key for member in members(key)])
    units = []
    for key, clients in by_key.items():
        names = members(key)
        size = min(sizes[name] for name in names)
        items = [WorkItem(client, names[0], overrides=overrides) for client in clients]
        client_tensors = dispatcher.tensors_to_test(key)
        for unit in dispatcher.plan_training({names[0]: size}, items, client_tensors):
            units.append(
                job.make_unit(
                    EVENT,
                    names,
                    **dispatcher.tensor_arguments(client_tensors, unit),
                    **dispatcher.test_objective(client_tensors),
                    members=names,
                    clients=[item.client for item in unit],
                    overrides=overrides,
                    learning_rate=job.learning_rate(round),
                    cohort=size,
                    statistics=job.reestimates_statistics,
                    **job.mask_arguments,
                )
            )
    return units


def personalise(dispatcher: Dispatcher, round: int, serve: Sequence[str], epochs: int) -> Evaluation:
    """Test clients after they tuned their served models for ``epochs``.

    A client that could not be tuned, or whose unit was dropped, counts as untested.
    """
    units = plan(dispatcher, round, serve, epochs)
    (evaluation,) = gather_tests(dispatcher, round, units, serve, "personalised")
    return evaluation


class Personalise(Kind):
    """Tuning of the unit's models for each of its clients, and a test of the results."""

    event: ClassVar[str] = EVENT

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        clients = header["clients"]
        logits: list[Any] = [None] * len(clients)
        missing: set[int] = set()
        data, bench, batch = worker.data, worker.bench, worker.test_batch
        for number, member in enumerate(header["members"]):
            settings = header.get("objective", {}), header["overrides"]
            items = [WorkItem(client, member, *settings).to_json() for client in clients]
            unit: UnitHeader = {**header, "round": EVENT}
            confs = worker.client_configs(unit, items)
            index = 0
            for results, states in worker.trained(member, confs, header["cohort"]):
                for row, result in enumerate(results):
                    if isinstance(result, Exception):
                        missing.add(clients[index])
                    else:
                        module = bench.resident(member)
                        module.load_state_dict({name: tensor[row] for name, tensor in states.items()})  # type: ignore[index]
                        if header["statistics"]:
                            measure_on_client(worker, module, clients[index])
                        network = worker.client_of(confs[index]).predictor(module, confs[index])
                        tuned = outputs(network, data, data.test_rows(clients[index]), batch, bench.device)
                        mean = logits[index]
                        logits[index] = tuned if mean is None else mean + (tuned - mean) / (number + 1)
                    index += 1
        mask = bool(header.get(MASK))
        figures = np.zeros((len(clients), len(COLUMNS) * (1 + mask)))
        for index, client in enumerate(clients):
            if client not in missing:
                labels = data.labels(data.test_rows(client))
                there = classes_present(data, [client]) if mask else None
                figures[index] = client_figures(logits[index], labels, there).sum(0).numpy()
        return {"missing": sorted(missing)}, {"figures": figures_section(figures)}

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, Section], test_sizes: np.ndarray
    ) -> None:
        check_missing(unit, header)
        check_test_figures(unit, sections, test_sizes[np.asarray(unit.header["clients"]) - 1])
