"""The job's task, what its clients' devices afford, and who may train, from what executors report of the data."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.core.types import Task
from fedscale_ext.data.importing.notes import untested_note
from fedscale_ext.data.job_data import split_notice
from fedscale_ext.data.wording import counted
from fedscale_ext.metrics.by_class import why_without_classes
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.population import Population
from fedscale_ext.server.method_base.hooks import MethodHooks
from fedscale_ext.transport.registration import ExecutorInfo

NEVER_ONLINE = "no client that may train is ever online: check device_avail_file, filter_less and filter_more"


def task_of(config: JobConfig, info: ExecutorInfo) -> Task:
    """Return the job's task: shape and sizes of the data that executors reported, and the job's steps."""
    channels, height, width = info.data["input_shape"]
    return Task(
        input_shape=(channels, height, width),
        num_classes=info.data["num_classes"],
        train_sizes=info.train_sizes,
        test_sizes=info.test_sizes,
        local_steps=config.fedscale.local_steps,
        batch_size=config.fedscale.batch_size,
        local_epochs=config.job.local_epochs,
        client_names=info.client_names,
    )


def device_capacities(config: JobConfig, task: Task, population: Population, method: MethodHooks) -> np.ndarray:
    """Return the MACs per sample that each client's device affords, float64 [clients].

    Args:
        config: the job.
        task: sizes of the clients' data.
        population: the clients' devices.
        method: the job's method, for what the device of least capacity is to afford (:func:`weakest_cost`).

    """
    args, job = config.fedscale, config.job
    return capacities(
        population,
        job.capacity_rule,
        weakest_cost(method),
        # by epochs, a device has as much to compute as it has samples
        local_steps=args.local_steps if job.local_epochs is None else job.local_epochs,
        batch_size=args.batch_size if job.local_epochs is None else task.train_sizes,
        reference_macs=job.reference_macs,
        deadline_s=job.deadline_s,
        spread=job.capacity_spread,
    )


def weakest_cost(method: MethodHooks) -> Cost:
    """Return what the device of least capacity is to afford.

    Under ``capacity_model``, this is to train that model and to exchange all of it, whatever the method itself sends:
    devices then afford the same under all methods. Otherwise it is what the method's smallest model costs.
    """
    if method.config.job.capacity_model is None:
        return method.smallest_cost()
    return models.cost(method.smallest_spec())


def report_data(
    config: JobConfig,
    task: Task,
    population: Population,
    data_info: Mapping[str, Any],
    notice: Callable[[str], None],
) -> None:
    """Tell what a result rests on: samples that clients are tested on, notes of the data and of devices' files,
    clients without samples."""
    notice(f"clients are tested on {data_info['test_source']}")
    if (split := split_notice(config, data_info["test_source"])) is not None:
        notice(split)
    for note in data_info["notes"]:
        notice(f"data: {one_line(note, 1000)}")
    for note in population.notes:
        notice(one_line(note, 1000))
    if untested := int((task.test_sizes == 0).sum()):
        notice(untested_note(untested, task.num_clients))
    if config.job.auc and (absent := why_without_classes({"data_set": config.fedscale.data_set})):
        notice(f"auc does nothing: {absent}")
    if strangers := data_info["test_only_clients"]:
        who = counted(strangers, "client of test.csv has", "clients of test.csv have")
        notice(f"{who} no training samples and {'is' if strangers == 1 else 'are'} left out")


def eligible_clients(
    config: JobConfig, task: Task, population: Population, notice: Callable[[str], None]
) -> np.ndarray:
    """Find the clients that have neither too few nor too many training samples.

    Args:
        config: the job.
        task: sizes of the clients' data.
        population: the clients' devices.
        notice: tells whoever watches the job of clients that never train.

    Returns:
        bool [clients].

    Raises:
        UserError: where fewer clients may train than a round asks for, or none of them is ever online.

    """
    args, sizes = config.fedscale, task.train_sizes
    eligible: np.ndarray = (sizes >= max(1, args.filter_less)) & (sizes <= args.filter_more)
    if few := int((~eligible).sum()):
        more = f" or more than filter_more={args.filter_more:g}" if "filter_more" in config.given else ""
        notice(
            f"{few} of {len(sizes)} clients {'has' if few == 1 else 'have'} fewer than filter_less={args.filter_less}"
            f"{more} training samples and never {'trains' if few == 1 else 'train'}"
        )
    if args.num_participants > eligible.sum():
        advice = [
            *(["lower filter_less"] if ((sizes > 0) & (sizes < args.filter_less)).any() else []),
            *(["raise filter_more"] if (sizes > args.filter_more).any() else []),
        ]
        raise UserError(
            f"num_participants {args.num_participants} is above the {int(eligible.sum())} clients that may "
            f"train; lower it{''.join(f', or {one}' for one in advice)}"
        )
    reachable = population.ever_online()
    if not (eligible & reachable).any():
        raise UserError(NEVER_ONLINE)
    if never := int((~reachable).sum()):
        verbs = ("is", "trains") if never == 1 else ("are", "train")
        notice(f"{never:,} of {len(reachable):,} clients {verbs[0]} never online and never {verbs[1]}")
    if (config.job.min_updates or 1) > args.num_participants:
        raise UserError(
            f"min_updates {config.job.min_updates} is above num_participants {args.num_participants}, the most updates "
            "of a round; lower it"
        )
    return eligible


def online_clients(
    population: Population, able: np.ndarray, allowed: np.ndarray, clock_s: float
) -> tuple[np.ndarray, float]:
    """Wait until a client is online that is both able and allowed; if none ever is, wait for an allowed one.

    Args:
        population: the clients' devices.
        able: clients that the method may select in the round, bool [clients].
        allowed: clients that privacy still allows to take part, bool [clients].
        clock_s: the virtual clock, in seconds.

    Returns:
        The able clients that are online, bool [clients], and the clock by then.

    Raises:
        UserError: where no allowed client is ever online.

    """
    availability = population.availability
    if availability is None:
        return able, clock_s
    online: np.ndarray = able & availability.online(clock_s)
    if (online & allowed).any():
        return online, clock_s
    next_s = availability.next_online(clock_s, able & allowed)
    if next_s is None:  # the round is of nobody then
        next_s = availability.next_online(clock_s, allowed)
    if next_s is None:
        raise UserError(NEVER_ONLINE)
    return able & availability.online(next_s), next_s
