"""A job's state as a checkpoint, and back: what a resumed job continues from."""

from typing import TYPE_CHECKING

from fedscale_ext.errors import UserError
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.runtime import checkpoint
from fedscale_ext.runtime.work import State

if TYPE_CHECKING:
    from fedscale_ext.runtime.aggregator import MultiModelAggregator

FOLDER = "checkpoints"


def save_job(job: "MultiModelAggregator", round: int) -> None:
    """Write the pool, the method's state and the virtual clock after ``round``."""
    tensors, data = job.state()
    tensors = {f"method/{name}": tensor for name, tensor in tensors.items()}
    for model in job.pool:
        tensors.update({f"pool/{model.key}/{name}": tensor for name, tensor in model.state.items()})
    pool = [{"key": model.key, "spec": model.spec.to_json(), "version": model.version} for model in job.pool]
    content = {
        "clock_s": job.global_virtual_clock,
        "pool": pool,
        "method": data,
        "cohort_sizes": job.workforce.cohort_sizes.chosen,
    }
    if job.privacy is not None:
        own, content["privacy"] = job.privacy.state()
        tensors.update({f"privacy/{name}": tensor for name, tensor in own.items()})
    checkpoint.save(job.log_dir / FOLDER, round, tensors, content, job.config.decisive())


def load_job(job: "MultiModelAggregator") -> int:
    """Take back the last checkpoint; returns the round that it was written after.

    UserError where there is none, or it is damaged or of another configuration.
    """
    found = checkpoint.load_latest(job.log_dir / FOLDER, job.config.decisive())
    if found is None:
        raise UserError(f"nothing to resume: {job.log_dir / FOLDER} holds no checkpoint; start without --resume")
    job.pool.clear()
    for entry in found.data["pool"]:
        state = _below(found.tensors, f"pool/{entry['key']}/")
        job.pool.add(entry["key"], ModelSpec.from_json(entry["spec"]), state).version = entry["version"]
    job.load_state(_below(found.tensors, "method/"), found.data["method"])
    job.global_virtual_clock = found.data["clock_s"]
    job.workforce.cohort_sizes.chosen.update(found.data["cohort_sizes"])
    if job.privacy is not None:
        job.privacy.load_state(_below(found.tensors, "privacy/"), found.data["privacy"])
    job.notice(f"resumed after round {found.round}")
    return found.round


def _below(tensors: State, prefix: str) -> State:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
