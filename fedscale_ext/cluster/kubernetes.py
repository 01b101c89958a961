"""Manifests that run a job on Kubernetes: the aggregator's Job, an indexed Job of executors that join, a Service."""

import posixpath
import re
from typing import Any

import yaml

from fedscale_ext.cluster import joining
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import preparation, runs
from fedscale_ext.driver.preparation import AGGREGATOR

_PORT = 50000  # inside the cluster: every aggregator has an address of its own
_TOKEN = "/run/fedscale/token"
_FOLDER = "/fedscale"  # where the claim is mounted: relative paths of the configuration begin there
_LABEL = "fedscale-job"
_EXECUTORS = "executors"
_TRIES = 10  # of each executor's pod: one that is lost joins again


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
    if config.job.resumes and "time_stamp" not in config.given:
        raise UserError("resume needs --set time_stamp=TIME, the name of the run's folder in logs/JOB on the volume")
    for key in ("log_path", "data_dir"):
        path = str(config.given.get(key, ""))
        there = posixpath.normpath(posixpath.join(_FOLDER, path))
        if path.startswith("~") or not (path.startswith("$") or f"{there}/".startswith(f"{_FOLDER}/")):
            raise UserError(
                f"{key} {path} is not on the volume, which is mounted at {_FOLDER}: write a path that is relative to it"
            )
    executors = sum(sum(counts) for _, counts in joining.slots(config, "host"))
    token_file, stamp = f"{_TOKEN}/token", runs.new_stamp(config)
    shared = {"time_stamp": stamp, "ps_port": _PORT, "token_file": token_file}
    paths = (config.cluster.exp_path, config.cluster.aggregator_entry)
    entry = ["python", "-m", "fedscale_ext.cluster.entry", *paths]
    words = [*map(_literal, joining.aggregator_arguments(config, **shared)), "--ps_ip=$(POD_IP)"]  # the last one counts
    join = ["python", *joining.JOIN]
    options = [joining.address(name, _PORT), *map(_literal, joining.options(config)), "--token-file", token_file]
    documents = [
        _service(name),
        _job(name, AGGREGATOR, entry, words, image, claim, backoffLimit=0),  # resuming is a new Job
        _job(name, _EXECUTORS, join, options, image, claim, gpu=config.fedscale.use_cuda,
             backoffLimitPerIndex=_TRIES, completionMode="Indexed", completions=executors,
             parallelism=executors),  # a pod that is lost is replaced
    ]  # fmt: skip
    head = (
        f"# Job {config.fedscale.job_name}. The token that signs its messages comes first, and is in no file:\n"
        f"#   openssl rand -hex 32 | kubectl create secret generic {name} --from-file=token=/dev/stdin\n"
        "# The image is that of the Dockerfile beside setup.py.\n"
        "# Executors that come late are no loss: they join.\n"
        f"# Data and results are on the volume of the claim {claim},\n"
        "# where relative paths of the configuration begin.\n"
        "# To continue this run after it stopped, remove its jobs and render it again:\n"
        f"#   kubectl delete jobs -l {_LABEL}={name}\n"
        f"#   --set resume=True --set time_stamp={stamp}\n"
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
    name: str, process: str, command: list[str], args: list[str], image: str, claim: str, gpu: bool = False, **more: Any
) -> dict[str, Any]:
    """A Job of one pod, or with ``more`` in its specification of several."""
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
    if gpu:
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-{process}", "labels": labels},
        "spec": {
            **more,
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
