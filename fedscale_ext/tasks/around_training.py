"""Accuracy of each client's model before and after its local training, measured alike for every method.

Methods test clients at different points of a round: Moss serves what its server's step made, and clients of FedMD keep
what they trained. At the end of a job with ``test_around_training``, each client does one more round as far as its
local training, which nobody collects. It is tested twice:

* before: on the model that its local training begins with. The server's step is behind it, and what a client learns
  from the server's message (the digest of FedMD);
* after: on the model that its local training ends with, before the server's next step (Moss's M_j^i).

Where a method tests with BatchNorm statistics that are re-estimated, those of a model that only this client has are
of its own training samples. The streams' keys hold the event's name instead of a round, so that neither the number of
executors nor earlier evaluations play a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch import nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.types import Evaluation, WorkItem
from fedscale_ext.tasks.answers.answer_checks import check_missing, check_test_figures
from fedscale_ext.tasks.answers.client_answers import gather_tests
from fedscale_ext.tasks.bn_statistics import measure_on_client
from fedscale_ext.tasks.evaluation_figures import COLUMNS, MASK, figures_section, test_clients
from fedscale_ext.tasks.kind import Answer, Dispatcher, Kind, Worker
from fedscale_ext.training.local_training import seed_layers
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Unit, UnitHeader

EVENT = "around_training"  # of a unit that does it, a further event; and the round in its streams' keys
SECTIONS = ("before", "after")  # of its answer


def plan(dispatcher: Dispatcher, round: int, items: Sequence[WorkItem]) -> list[Unit]:
    """Plan the units of the items' clients that have training and test samples."""
    job = dispatcher.job
    able = (job.task.test_sizes > 0) & (job.task.train_sizes > 0)
    tested = [item for item in items if able[item.client - 1]]
    sizes = dispatcher.cohort_sizes_of(tested)
    client_tensors = dispatcher.tensors_for(tested)
    for tensors in client_tensors:
        tensors.begin(tested)
    return [
        job.make_unit(
            EVENT,
            [part[0].model],
            **dispatcher.tensor_arguments(client_tensors, part),
            items=[item.to_json() for item in part],
            clients=[one.client for one in part],
            learning_rate=job.learning_rate(round),
            cohort=sizes[part[0].model],
            statistics=job.reestimates_statistics,
            **job.mask_arguments,
        )
        for part in dispatcher.plan_training(sizes, tested, client_tensors)
    ]


def around_training(
    dispatcher: Dispatcher, round: int, serve: Sequence[str], items: Sequence[WorkItem]
) -> tuple[Evaluation, Evaluation]:
    """Test clients before and after they train ``items``, one item per client: two evaluations.

    A client whose training failed, or whose unit was dropped, counts as untested in both.
    """
    units = plan(dispatcher, round, items)
    before, after = gather_tests(dispatcher, round, units, serve, "tested around training", SECTIONS)
    return before, after


class AroundTraining(Kind):
    """The unit's clients train, and the model of each is tested before and after."""

    event: ClassVar[str] = EVENT

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        clients, items = header["clients"], header["items"]
        unit: UnitHeader = {**header, "round": EVENT}
        mask = bool(header.get(MASK))
        figures = np.zeros((len(SECTIONS), len(clients), len(COLUMNS) * (1 + mask)))  # before and after
        missing: set[int] = set()
        for row, conf in enumerate(worker.client_configs(unit, items)):
            try:
                module = begun(worker, conf)
            except FloatingPointError:
                missing.add(clients[row])
                continue
            measured = header["statistics"] and conf.client_state is not None
            figures[0, row] = _tested(worker, module, conf, measured, mask)
        confs = worker.client_configs(unit, items)
        row = 0
        for results, states in worker.trained(items[0]["model"], confs, header["cohort"]):
            for index, result in enumerate(results):
                conf = confs[row]
                if isinstance(result, Exception):
                    missing.add(clients[row])
                else:
                    module = worker.bench.resident(conf.model_key)
                    module.load_state_dict({name: tensor[index] for name, tensor in states.items()})  # type: ignore[index]
                    if conf.client_state is not None:
                        conf = replace(conf, client_state=result["client_state"])
                        conf_after = replace(
                            conf, shared_tensors=None
                        )  # what came before training is not of its result
                        worker.client_of(conf_after).load_personal_model(module, conf_after)
                    figures[1, row] = _tested(worker, module, conf, header["statistics"], mask)
                row += 1
        sections = {name: figures_section(each) for name, each in zip(SECTIONS, figures, strict=True)}
        return {"missing": sorted(missing)}, sections

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, wire.Section], test_sizes: np.ndarray
    ) -> None:
        check_missing(unit, header)
        check_test_figures(unit, sections, test_sizes[np.asarray(unit.header["clients"]) - 1], SECTIONS)


def _tested(worker: Worker, module: nn.Module, conf: ClientConfig, measured: bool, mask: bool) -> np.ndarray:
    """float64 [3] of a client's test samples, or [6] with ``mask``; with BatchNorm statistics of its training samples
    where ``measured``."""
    client = conf.client_id
    if measured:
        measure_on_client(worker, module, client)
    network = worker.client_of(conf).predictor(module, conf)
    tested = test_clients([network], worker.data, [client], worker.test_batch, worker.bench.device, mask)
    figures: np.ndarray = tested.figures[0]
    return figures


def begun(worker: Worker, conf: ClientConfig) -> nn.Module:
    """Return the resident module, holding the model that a client's local training begins with.

    FloatingPointError where learning from the server's message diverges.
    """
    module = worker.bench.module(conf.model_key)
    seed_layers(conf)
    worker.client_of(conf).begin(module, conf)
    return module
