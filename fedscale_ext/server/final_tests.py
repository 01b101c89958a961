"""The tests of the final models that a job asks for, in addition to those of every evaluation."""

from collections.abc import Callable

from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.types import RoundRecord, WorkItem
from fedscale_ext.tasks.around_training import around_training
from fedscale_ext.tasks.kind import Dispatcher
from fedscale_ext.tasks.personalise import personalise
from fedscale_ext.tasks.test_on_all import test_on_all
from fedscale_ext.util.stopwatch import Stopwatch


def run_final_tests(
    record: RoundRecord,
    dispatcher: Dispatcher,
    job: JobKeys,
    watch: Stopwatch,
    next_items: Callable[[], list[WorkItem]],
) -> None:
    """Personalize the models, test them on all samples, and around local training, as the job is configured.

    Args:
        record: The last round's, with an evaluation, unless nobody was tested. The results become part of it.
        dispatcher: Has executors do the work.
        job: The job's keys.
        watch: Measures how long each test takes.
        next_items: Gives the work items of all clients in another round.

    """
    if record.evaluation is None:
        return
    round, serve = record.round, record.evaluation.serve
    if job.personalise_epochs:
        with watch("personalise"):
            record.personalised = personalise(dispatcher, round, serve, job.personalise_epochs)
    if job.test_on_all:
        with watch("on_all"):
            record.on_all = test_on_all(dispatcher, round, serve)
    if job.test_around_training:
        with watch("around_training"):
            record.before_training, record.after_training = around_training(dispatcher, round, serve, next_items())
