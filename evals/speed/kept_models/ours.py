"""Our whole job on the work by `fedscale driver start`, with two executors of one thread each.

Where accuracies count, the job runs in one process, which gives the same to the last bit.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from evals.speed.kept_models.work import BATCH, CLIENTS, RATE, SHARE, Work
from evals.speed.rows.ours import JOB, run
from evals.speed.task import PROCESSES, Spans
from fedscale_ext.config.job_config import load_config
from fedscale_ext.entry.in_process import run_in_process


def configuration(work: Work) -> dict[str, Any]:
    """The job as FedScale's YAML says it; writes the specs of its networks beside it."""
    files = [str(work.out / f"{name}.json") for name in ("larger", "smaller")]
    for file, spec in zip(files, work.specs(), strict=True):
        with open(file, "w", encoding="utf-8") as target:
            json.dump(spec.to_json(), target)
    half = CLIENTS // 2
    keys = {
        "job_name": JOB, "log_path": str(work.out), "time_stamp": "run", "ps_port": 0, "use_cuda": False,
        "method": work.method, "model": files[1], f"{work.method}.types": files,
        f"{work.method}.ranges": [f"1-{half}", f"{half + 1}-{CLIENTS}"],
        "data_set": work.about["data_set"], "data_dir": str(work.data / work.about["layout"]),
        "device_conf_file": "resampled", "overcommitment": 1.0, "filter_less": 0, "num_participants": CLIENTS,
        "rounds": work.rounds + 2 * (not work.tested), "eval_interval": 1 if work.tested else work.rounds + 1000,
        "local_steps": work.steps, "batch_size": BATCH, "learning_rate": RATE, "decay_factor": 1.0,
        "client_momentum": 0.0, "client_weight_decay": 0.0, "seed": work.seed,
    }  # fmt: skip
    if work.method == "fml":
        keys |= {"fml.alpha": SHARE, "fml.beta": SHARE}
    return {
        "ps_ip": "127.0.0.1",
        "worker_ips": [f"localhost:[{PROCESSES}]"],
        "job_conf": [{key: value} for key, value in keys.items()],
    }


def accuracies(work: Work) -> list[tuple[int, float]]:
    """Run the job in this process; each test's round and mean accuracy over clients."""
    conf = work.out / "conf.yml"
    conf.write_text(yaml.safe_dump(configuration(work), sort_keys=False), encoding="utf-8")
    folder = Path(run_in_process(load_config(conf))["log_dir"])
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(line["round"], line["evaluation"]["accuracy"]["mean"]) for line in lines if "evaluation" in line]


def main() -> None:
    """Run the job, and write what its rounds took or what its tests gave."""
    work = Work.asked()
    if work.tested:
        spans = Spans()
        spans.begin()
        found = accuracies(work)
        spans.end()  # of all rounds: nobody reads it
        spans.write(work.out, warm_up=0, accuracy=found)
    else:
        spans, _, whole = run(work.out, configuration(work))
        spans.write(work.out, warm_up=0, **whole)


if __name__ == "__main__":
    main()
