"""Clients train the models of their work items: the work of every round."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from fedscale.cloud import commons

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import one_line
from fedscale_ext.core.failures import LONGEST, diverged
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.models import parameter_names
from fedscale_ext.tasks.answers.answer_checks import is_number, is_plain
from fedscale_ext.tasks.answers.update_checks import Rejected, check_training_report
from fedscale_ext.tasks.client_tensors import (
    CONTROL_VARIATES,
    ClientState,
    ClientTensors,
    ReturnedTensors,
    section_name,
)
from fedscale_ext.tasks.kind import TENSORS, Answer, Dispatcher, Kind, Worker
from fedscale_ext.tasks.reduction import CLASSES, SUM, UnitSum, faults_in_states
from fedscale_ext.tasks.workbench import can_factor
from fedscale_ext.training.label_mask import present
from fedscale_ext.training.resident import CohortState
from fedscale_ext.training.scaffold import new_variate
from fedscale_ext.training.update_norms import change_norms
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Unit, UnitHeader


def plan(
    dispatcher: Dispatcher,
    round: int,
    items: Sequence[WorkItem],
    cohort: int,
    weights: Sequence[float],
    client_tensors: Sequence[ClientTensors],
) -> Unit:
    """A unit of clients of one model and objective.

    Args:
        dispatcher: the executors.
        round: number of the round, from 1.
        items: what each client trains.
        cohort: how many of them train side by side.
        weights: of each client's state in the mean of its model.
        client_tensors: tensors that the round's clients get in addition to models.

    """
    job = dispatcher.job
    return job.make_unit(
        Train.event,
        [items[0].model],
        **dispatcher.tensor_arguments(client_tensors, items),
        learning_rate=job.learning_rate(round),
        cohort=cohort,
        sum=job.returns == "sum",
        states=job.returns == "states",
        clip_norm=dispatcher.clip_norm,
        norms=dispatcher.reports_norms,
        items=[
            {**item.to_json(), "weight": weight, "dropped": list(item.dropped)}
            for item, weight in zip(items, weights, strict=True)
        ],
    )


class Train(Kind):
    """Training of a unit's clients. A failed client is reported; the unit goes on.

    Where the unit asks for their sum, one section of the answer holds the weighted sum of the clients' changes. Where
    it asks for their states, each client's is a section. Of clients that keep their models, it asks for neither.
    """

    event: ClassVar[str] = commons.CLIENT_TRAIN
    answer: ClassVar[str] = commons.UPLOAD_MODEL

    def run(self, worker: Worker, header: UnitHeader) -> Answer:  # noqa: D102
        items = header["items"]
        confs = worker.client_configs(header, items)
        model, most = items[0]["model"], confs[0].max_update_norm
        spec, start = worker.bench.spec(model), worker.bench.state(model)
        total = UnitSum(start, most, header["clip_norm"], spec) if header["sum"] else None
        results: list[dict[str, Any]] = []
        sections: dict[str, bytes] = {}
        factored = can_factor(header, confs)
        for trained, states in worker.trained(model, confs, header["cohort"], factored):
            begin = len(results)
            norms = _norms(worker, states, start, spec) if header["norms"] else [None] * len(trained)
            reports = zip(confs[begin:], trained, norms, strict=False)
            results += [_report(worker, conf, result, norm) for conf, result, norm in reports]
            returned = _returned_tensors(confs, results, begin, start, trained, states)
            _keep_dropped(items[begin : len(results)], results[begin:], states, start)
            if header["states"]:
                with worker.watch("wire"):
                    sections.update(_encoded_states(states, results, begin))
            elif total is None:
                with worker.watch("training"):
                    _fail(results[begin:], faults_in_states(states))
            else:
                with worker.watch("training"):
                    weights = [
                        None if "failed" in result else item["weight"]
                        for result, item in zip(results[begin:], items[begin:], strict=False)
                    ]
                    classes = _classes(worker, confs[begin : len(results)])
                    _fail(results[begin:], total.add(states, weights, classes))
            with worker.watch("wire"):
                sections.update(_encoded_tensors(returned, results))
        answer: dict[str, Any] = {"results": results}
        if total is not None:
            with worker.watch("wire"):
                answer.update(weight=total.weight, num_unclipped=total.num_unclipped)
                sections[SUM] = wire.tensors_to_bytes(total.change())
                if total.class_weight is not None:
                    sections[CLASSES] = wire.tensors_to_bytes({"weights": total.class_weight})
        return answer, sections

    def check(  # noqa: D102
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, wire.Section], test_sizes: np.ndarray
    ) -> None:
        results, items = header.get("results"), unit.header["items"]
        if not isinstance(results, list) or len(results) != len(items):
            raise wire.WireError(f"results are not a list of {len(items)}")
        for result in results:
            if not isinstance(result, dict) or type(result.get("client")) is not int:
                raise wire.WireError("a result names no client")
            for name, value in result.items():
                if not is_plain(value):
                    raise wire.WireError(f"{name[:40]!r} of a client is no number or short text")
        if "weight" in header and not is_number(header["weight"]):
            raise wire.WireError("weight is no number")
        known = {SUM, CLASSES} if unit.header["sum"] else set()
        if unit.header["states"]:
            known |= set(map(str, range(len(items))))
        for kind in unit.header.get(TENSORS, ()):
            known |= {section_name(kind, index) for index in range(len(items))}
        if not sections.keys() <= known:
            raise wire.WireError("a section that nobody asked for")


def _fail(results: Sequence[dict[str, Any]], faults: Sequence[str | None]) -> None:
    """Mark clients with a fault as failed, in place."""
    for result, fault in zip(results, faults, strict=True):
        if fault is not None and "failed" not in result:
            result["failed"] = fault


def _report(
    worker: Worker, conf: ClientConfig, result: Mapping[str, Any] | Exception, norm: float | None
) -> dict[str, Any]:
    """What is reported of a client: its figures, or why it failed."""
    if isinstance(result, FloatingPointError):
        logging.warning(f"client {conf.client_id} diverged: {result}")
        return {"client": conf.client_id, "failed": one_line(diverged(str(result)), LONGEST)}
    if isinstance(result, Exception):
        logging.error(f"client {worker.data.client_names[conf.client_id - 1]} failed", exc_info=result)
        return {"client": conf.client_id, "failed": one_line(f"{type(result).__name__}: {result}", LONGEST)}
    samples = int(worker.data.train_sizes[conf.client_id - 1])
    figures = {
        "client": conf.client_id,
        "samples": samples,
        "trained": result["trained_size"],
        "steps": conf.local_steps,
        "loss": result["moving_loss"],
        "utility": result["utility"],
    }
    if norm is not None:
        figures["norm"] = norm
    try:  # here as well as where it arrives: a client that does not count must not be in the unit's sum
        check_training_report(figures, samples, conf.local_steps, int(worker.batch_sizes(conf).sum()), norm is not None)
    except Rejected as reason:
        return {"client": conf.client_id, "failed": reason.reason}
    return figures


def _returned_tensors(
    confs: Sequence[ClientConfig],
    results: list[dict[str, Any]],
    begin: int,
    start: State,
    trained: Sequence[dict[str, Any] | Exception],
    states: CohortState,
) -> dict[int, dict[str, State]]:
    """The tensors that the clients from ``begin`` on also return, by index in the unit and kind; a client without a
    finite control variate has failed."""
    returned: dict[int, dict[str, State]] = {}
    for index in range(begin, len(results)):
        result, conf = trained[index - begin], confs[index]
        if isinstance(result, Exception) or "failed" in results[index]:
            continue
        returned[index] = {}
        if conf.client_state is not None:
            client_state = _part_of(result, "client_state")
            returned[index][ClientState.kind] = {name: tensor.cpu() for name, tensor in client_state.items()}
        if conf.returns_tensors:
            returned[index][ReturnedTensors.kind] = _part_of(result, "returned")
        if conf.gradient_offset is not None:
            new = new_variate(conf, start, states, index - begin)
            if new is None:
                results[index]["failed"] = diverged("its control variate is not finite")
            else:
                returned[index][CONTROL_VARIATES] = new
    return returned


def _part_of(result: Mapping[str, Any], name: str) -> State:
    """Return tensors of a client's result; ValueError, for the method's author, where its client returns none."""
    if name not in result:
        raise ValueError(f"a client's result lacks {name!r}, which client_tensors lists")
    tensors: State = result[name]
    return tensors


def _classes(worker: Worker, confs: Sequence[ClientConfig]) -> torch.Tensor | None:
    """bool [clients, classes] of clients who count for their own classes only."""
    if not confs[0].own_classes:
        return None
    return present([worker.samples(conf).y for conf in confs], worker.data.num_classes)


def _norms(worker: Worker, states: CohortState, start: State, spec: ModelSpec) -> list[float]:
    """Norm of each client's change of its parameters."""
    with worker.watch("training"):
        return change_norms(states, {name: start[name] for name in parameter_names(spec) if name in start}).tolist()


def _keep_dropped(
    items: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]], states: CohortState, start: State
) -> None:
    """Put back what clients do not upload: ``states`` [clients, *shape] where ``items`` name tensors ``dropped``."""
    for row, (item, result) in enumerate(zip(items, results, strict=True)):
        for name in () if "failed" in result else item["dropped"]:
            rows = states[name]
            assert isinstance(rows, torch.Tensor)  # see tasks.workbench.can_factor
            rows[row].copy_(start[name])


def _encoded_states(states: CohortState, results: Sequence[Mapping[str, Any]], begin: int) -> dict[str, bytes]:
    """A section for the state of each client that did not fail, by index in the unit."""
    return {
        str(begin + row): wire.tensors_to_bytes({name: tensor[row].cpu() for name, tensor in states.items()})
        for row in range(len(results) - begin)
        if "failed" not in results[begin + row]
    }


def _encoded_tensors(
    returned: Mapping[int, Mapping[str, State]], results: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """A section for each kind of tensors that a client also returns, unless it failed."""
    return {
        section_name(kind, index): wire.tensors_to_bytes(new)
        for index, kinds in returned.items()
        if "failed" not in results[index]
        for kind, new in kinds.items()
    }
