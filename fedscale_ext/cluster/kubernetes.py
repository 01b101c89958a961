"""Manifests that run a job on Kubernetes: a Job per process, and a Service by which executors find the aggregator."""

import re
from typing import Any

import yaml

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import preparation, runs
from fedscale_ext.driver.preparation import AGGREGATOR

_PORT = 50000  # inside the cluster: every aggregator has an address of its own
_TOKEN = "/run/fedscale/token"
_FOLDER = "/fedscale"  # where the claim is mounted: relative paths of the configuration begin there
_LABEL = "fedscale-job"


def render(config: JobConfig, image: str, claim: str) -> str:
    """YAML documents for `kubectl apply -f -`; UserError for names that Kubernetes does not take."""
    preparation.refuse_key(config)
    name = config.fedscale.job_name.lower().replace("_", "-").replace(".", "-")
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", name):
        raise UserError(
            f"job_name {config.fedscale.job_name!r} cannot name objects of Kubernetes: begin with a letter and use at "
            "most 42 letters, digits and '-'"
        )
    for option, value in (("--image", image), ("--claim", claim)):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", value):
            raise UserError(f"{option} {value!r} is no name of Kubernetes: write letters, digits and . _ : / @ -")
    stamp = runs.new_stamp(config)
    shared = {"time_stamp": stamp, "ps_port": _PORT, "token_file": f"{_TOKEN}/token"}
    words = preparation.arguments(config, **shared)
    documents = [_service(name)]
    for process, argv in words.items():
        aggregator = process == AGGREGATOR
        entry = config.cluster.aggregator_entry if aggregator else config.cluster.executor_entry
        host = "$(POD_IP)" if aggregator else name
        command = ["python", "-m", "fedscale_ext.cluster.entry", config.cluster.exp_path, entry]
        args = [*(_literal(word) for word in argv), f"--ps_ip={host}"]
        if not aggregator:
            args.append("--cuda_device=cuda:0")  # the only one that its pod has
        documents.append(_job(name, process.replace(" ", "-"), image, claim, command, args, config.fedscale.use_cuda))
    head = (
        f"# Job {config.fedscale.job_name}. The token that signs its messages comes first, and is in no file:\n"
        f"#   openssl rand -hex 32 | kubectl create secret generic {name} --from-file=token=/dev/stdin\n"
        f"# Data and results are on the volume of the claim {claim},\n"
        "# where relative paths of the configuration begin.\n"
    )
    return head + yaml.safe_dump_all(documents, sort_keys=False, width=120)


def _literal(word: str) -> str:
    """A word that Kubernetes leaves as it is: it would replace $(NAME)."""
    return word.replace("$", "$$")


def _labels(name: str, process: str) -> dict[str, str]:
    return {_LABEL: name, "fedscale-process": process}


def _service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {_LABEL: name}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(name, AGGREGATOR),
            "ports": [{"name": "grpc", "port": _PORT}],
        },
    }


def _job(
    name: str, process: str, image: str, claim: str, command: list[str], args: list[str], gpu: bool
) -> dict[str, Any]:
    labels = _labels(name, process)
    container: dict[str, Any] = {
        "name": process,
        "image": image,
        "workingDir": _FOLDER,
        "command": command,
        "args": args,
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "volumeMounts": [
            {"name": "files", "mountPath": _FOLDER},
            {"name": "token", "mountPath": _TOKEN, "readOnly": True},
        ],
    }
    if gpu and process != AGGREGATOR:
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-{process}", "labels": labels},
        "spec": {
            "backoffLimit": 0 if process == AGGREGATOR else 10,  # an executor is replaced; --resume is a new job
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [container],
                    "volumes": [
                        {"name": "files", "persistentVolumeClaim": {"claimName": claim}},
                        {"name": "token", "secret": {"secretName": name, "defaultMode": 0o400}},
                    ],
                },
            },
        },
    }
