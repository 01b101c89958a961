"""A job's state as a checkpoint, and back: what a resumed job continues from.

Random streams have no state to keep: each is keyed by what it is for (streams.py), and participants are drawn
from such a stream, the virtual clock, and what is known of clients where they are chosen by that.
"""

from typing import TYPE_CHECKING, Any

import torch

from fedscale_ext.config.changed_settings import completed
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import Part, State
from fedscale_ext.data.job_data import check_same_data
from fedscale_ext.data.named_files import differing_files
from fedscale_ext.metrics.lines import Mark
from fedscale_ext.server import checkpoint

if TYPE_CHECKING:
    from fedscale_ext.server.aggregator import MultiModelAggregator

FOLDER = "checkpoints"


def save_job(job: "MultiModelAggregator", round: int) -> None:
    """Write the pool, the state of the method and of the selection, the virtual clock and how far the records reach
    after ``round``."""
    tensors, data = job.state()
    tensors = {f"method/{name}": tensor for name, tensor in tensors.items()}
    for model in job.pool:
        tensors.update({f"pool/{model.key}/{name}": tensor for name, tensor in model.state.items()})
    pool = [
        {"key": model.key, "spec": model.spec.to_json(), "version": model.version, "part": _part_to_json(model.part)}
        for model in job.pool
    ]
    content = {
        "clock_s": job.global_virtual_clock,
        "pool": pool,
        "method": data,
        "cohort_sizes": job.dispatcher.cohort_sizes.chosen,
        "records": job.records.recorder.reached(),
        "code": job.code,
        "data_digest": job.data_info["digest"],
        "named_files": job.file_digests,
        "resumed": job.resumed,
        "notices": list(job.notices),
    }
    if job.privacy is not None:
        saved, content["privacy"] = job.privacy.state()
        tensors.update({f"privacy/{name}": tensor for name, tensor in saved.items()})
    if job.selection is not None:
        saved, content["selection"] = job.selection.state()
        tensors.update({f"selection/{name}": tensor for name, tensor in saved.items()})
    by_kind = {}
    for kind, client_tensors in job.client_tensors_by_kind.items():
        saved, by_kind[kind] = client_tensors.state()
        tensors.update({f"{kind}/{name}": tensor for name, tensor in saved.items()})
    content["client_tensors"] = by_kind
    settings, keep = job.config.decisive(), job.config.job.checkpoint_keep
    checkpoint.save(job.log_dir / FOLDER, round, tensors, content, settings, keep)
    for client_tensors in job.client_tensors_by_kind.values():
        client_tensors.files.drop_unneeded(checkpoint.written_rounds(job.log_dir / FOLDER))


def load_job(job: "MultiModelAggregator") -> tuple[int, dict[str, Mark]]:
    """Take back the last checkpoint, or that of round ``resume_from``.

    Returns the round that it was written after and how far the records reached by then. UserError where there is
    no such checkpoint, or it is damaged or of another configuration.
    """
    folder = job.log_dir / FOLDER
    saved = checkpoint.load(folder, job.config.decisive(), job.config.job.resume_from, completed)
    if saved is None:
        raise UserError(f"nothing to resume: {folder} holds no checkpoint; start without --resume")
    if saved.round > job.args.rounds:
        raise UserError(
            f"the checkpoint of round {saved.round} is beyond the {job.args.rounds} rounds that are asked for; raise "
            "rounds, or start the job anew without --resume"
        )
    data = saved.data
    digest = job.data_info["digest"]
    before = data.get("data_digest", digest)  # an earlier release did not write it
    check_same_data(job.config, digest, before, f"the checkpoint of round {saved.round} was written")
    if changed := differing_files(data.get("named_files", {}), job.file_digests):  # as above
        raise UserError(
            f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} other contents than when the checkpoint of "
            f"round {saved.round} was written: restore {'it' if len(changed) == 1 else 'them'}, or start anew without "
            "--resume"
        )
    job.pool.clear()
    for entry in data["pool"]:
        key, spec = entry["key"], ModelSpec.from_json(entry["spec"])
        if entry["part"] is None:
            model = job.pool.add(key, spec, {})
        else:
            channels = {group: torch.tensor(index) for group, index in entry["part"]["channels"].items()}
            model = job.pool.add_part(key, entry["part"]["reference"], spec, channels)
        model.state, model.version = _below(saved.tensors, f"pool/{key}/"), entry["version"]
    job.load_state(_below(saved.tensors, "method/"), data["method"])
    job.global_virtual_clock = data["clock_s"]
    job.dispatcher.cohort_sizes.chosen.update(data["cohort_sizes"])
    same = data["code"] == job.code
    job.notices = dict.fromkeys([*data.get("notices", ()), *job.notices])  # an earlier version kept none
    job.resumed = [*data["resumed"], {"after_round": saved.round, "code_changed": not same}]
    if job.privacy is not None:
        job.privacy.load_state(_below(saved.tensors, "privacy/"), data["privacy"])
    if job.selection is not None:
        job.selection.load_state(_below(saved.tensors, "selection/"), data["selection"])
    for kind, client_tensors in job.client_tensors_by_kind.items():
        client_tensors.load_state(_below(saved.tensors, f"{kind}/"), data["client_tensors"][kind])
    job.notice(f"resumed after round {saved.round}")
    if not same:
        job.notice(
            "this program, torch or NumPy has changed since the checkpoint was written: the result may differ from "
            "that of an undisturbed job"
        )
    return saved.round, data["records"]


def _part_to_json(part: Part | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {"reference": part.reference, "channels": {group: index.tolist() for group, index in part.channels.items()}}


def _below(tensors: State, prefix: str) -> State:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
