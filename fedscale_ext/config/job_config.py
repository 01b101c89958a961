"""From a YAML file or a command line to a validated JobConfig, and from that to FedScale's arguments.

Both ways in carry the same flat ``key: value`` pairs: a YAML lists them under ``job_conf``, and
drivers (this package's and FedScale's own) pass each as ``--key value`` to the entry scripts.
"""

import argparse
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedscale_ext.config.arguments import expanded, fedscale_actions, fedscale_arguments, or_none
from fedscale_ext.config.executor_slots import executor_slots
from fedscale_ext.config.keys import JobKeys
from fedscale_ext.config.presets import ON, ask_for_data, data_presets, is_method, preset_words, render
from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.util.commas import at_commas, rejoined
from fedscale_ext.util.package import PACKAGE
from fedscale_ext.util.reading import read_plain
from fedscale_ext.util.validation import first_fault, truth_for_number
from fedscale_ext.util.yaml_reading import MAX_BYTES, load_yaml

SECRET = {"wandb_token"}
_POLICY_METHODS = {"fed-prox": "fedprox", "fed-yogi": "fedyogi", "q-fedavg": "qfedavg"}
# keys that each process of a job has for itself
OF_A_PROCESS = {"log_path", "time_stamp", "ps_ip", "ps_port", "this_rank", "num_executors", "executor_configs",
                 "cuda_device", "resume", "resume_from", "token_file", "tls_ca", "tls_aggregator_cert",
                 "tls_aggregator_key", "tls_executor_cert", "tls_executor_key"}  # fmt: skip
# keys that say where a job runs, and for how many rounds, not what it computes; nothing reads conf_path, a folder in
# each machine's own home directory
_NOT_DECISIVE = OF_A_PROCESS | {"rounds", "job_name", "conf_path", "unit_timeout_s", "register_timeout_s",
                                 "max_message_mb", "checkpoint_interval", "checkpoint_keep", "lease_s",
                                 "replacement_s", "reconnect_s", "unit_tries", "message_window_s"}  # fmt: skip


class AuthKeys(BaseModel):
    """Keys below ``auth``: how ssh logs in; empty ones leave it to ssh's own configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ssh_user: str | None = None
    ssh_private_key: str | None = None
    ssh_config: str | None = None


class ClusterKeys(BaseModel):
    """Top-level keys of a YAML: where processes run and which files are their entries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ps_ip: str = "127.0.0.1"
    worker_ips: tuple[str, ...] = ("localhost",)
    exp_path: str = "fedscale_ext"
    aggregator_entry: str = "entry/aggregator.py"
    executor_entry: str = "entry/executor.py"
    auth: AuthKeys = AuthKeys()
    setup_commands: tuple[str, ...] | None = None
    python: str | None = None
    work_dir: str | None = None


@dataclass(frozen=True)
class JobConfig:
    """A validated job.

    ``cluster`` are the YAML's top-level keys, ``job`` the keys of this package, ``fedscale`` every
    key of FedScale's config_parser with its right type, ``params`` the ``<method>.<name>`` keys as
    given, ``given`` the flat keys that the user gave (what :func:`to_argv` passes on).
    """

    cluster: ClusterKeys
    job: JobKeys
    fedscale: argparse.Namespace
    params: Mapping[str, Any]
    given: Mapping[str, Any]
    source: Path | None = None

    def method_params(self) -> dict[str, Any]:
        """The hyperparameters given for the job's method, by their bare names. Those of other methods bind no job."""
        return self.params_by_method().get(self.job.method, {})

    def params_by_method(self) -> dict[str, dict[str, Any]]:
        """The hyperparameters given for each method, by their bare names; without methods that have none."""
        methods: dict[str, dict[str, Any]] = {}
        for key, value in self.params.items():
            method, _, name = key.partition(".")
            methods.setdefault(method, {})[name] = value
        return methods

    def echo(self) -> dict[str, Any]:
        """Every setting of the job as one flat JSON object, but for secrets."""
        settings = {**vars(self.fedscale), **self.job.model_dump(), **self.params}
        return {key: value for key, value in settings.items() if key not in SECRET}

    def origin(self) -> str:
        """Return what names the configuration in a command: the path of its file, or METHOD --on DATA."""
        return origin(self.source) if self.source else ""

    def takes_away(self, key: str) -> bool:
        """Tell whether a key is given as null, which turns off what it asks for, and what other keys say of that."""
        return key in self.given and or_none(self.given[key]) is None

    def decisive(self) -> dict[str, Any]:
        """The settings that decide the job's result, as JSON, without places, ports, rounds and other methods' keys."""
        return decisive(self.echo())

    def entry_paths(self) -> tuple[Path, Path]:
        """Files of the aggregator's and the executors' entry; below ``exp_path``, else below this package."""
        return self._entry(self.cluster.aggregator_entry), self._entry(self.cluster.executor_entry)

    def _entry(self, entry: str) -> Path:
        return entry_path(self.cluster.exp_path, entry)


def entry_path(exp_path: str, entry: str) -> Path:
    """Find the file of an entry on this machine: below ``exp_path``, else below this package; UserError for none."""
    root = Path(expanded("exp_path", exp_path))
    for folder in (root, PACKAGE.parent / root):
        if (folder / entry).is_file():
            return (folder / entry).resolve()
    moved = entry.startswith("methods/")  # as earlier releases had them
    advice = "name entry/aggregator.py and entry/executor.py" if moved else "set exp_path to the folder it lies in"
    raise UserError(f"entry {entry!r} is not below exp_path {root}; {advice}")


def decisive(echo: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide a job's result; ``echo`` is that of :meth:`JobConfig.echo` or header.json."""
    of_method = f"{echo.get('method')}."  # a key with a dot is a hyperparameter; no method reads another one's
    settings = {
        key: value
        for key, value in echo.items()
        if key not in _NOT_DECISIVE and ("." not in key or key.startswith(of_method))
    }
    return json.loads(json.dumps(settings, sort_keys=True, default=str))


def set_aside(echo: Mapping[str, Any]) -> int:
    """Return the number of training samples that a job takes from its clients as public data.

    ``echo`` is that of :meth:`JobConfig.echo` or header.json.
    """
    return 0 if echo.get("public_dir") else int(echo.get("public_samples") or 0)


@dataclass(frozen=True)
class ConfFile:
    """A YAML as it was when it was read: its ``path``, which messages name, and its ``content``.

    The path of presets is METHOD --on DATA.
    """

    path: Path
    content: bytes


def origin(source: Path) -> str:
    """Return what names a configuration in a command, in any folder: its file's whole path, or METHOD --on DATA."""
    return str(source) if ON in str(source) and not source.is_file() else str(source.absolute())


def read_conf(conf: str | Path | ConfFile) -> ConfFile:
    """Read a YAML, given by its path or by the name of a shipped configuration, or compose one of METHOD --on DATA.

    UserError for one that is missing.
    """
    if isinstance(conf, ConfFile):
        return conf
    method, on, data = str(conf).partition(ON)
    if on and not Path(conf).is_file():
        if method in shipped_configs() or (not is_method(method) and Path(method).suffix):
            raise UserError(f"{method} is a whole configuration, with its data; leave --on out, or give a method")
        return ConfFile(Path(preset_words(method, data)), render(method, data).encode())
    path = _find(conf)
    try:
        return ConfFile(path, read_plain(path, MAX_BYTES))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def load_config(conf: str | Path | ConfFile, overrides: Sequence[str] = ()) -> JobConfig:
    """Read a YAML as :func:`read_conf` does, or take what was read, and apply ``key=value`` overrides.

    Raises UserError for a missing file, broken YAML, unknown keys and values of a wrong type.
    """
    file = read_conf(conf)
    path = file.path
    try:
        data = load_yaml(file.content.decode("utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        what = "it is empty" if data is None else "it holds none"
        raise UserError(f"{path} must hold keys such as ps_ip and job_conf; {what}")
    if data.get("use_container"):
        raise UserError(f"{path}: use_container is served by FedScale's own driver only; remove it to run here")
    if "job_conf" not in data:
        _check_known(data, lambda _: str(path))
        raise UserError(f"{path} has no job_conf, the list of the job's keys, as in '- rounds: 100'")
    flat = _flatten(data.pop("job_conf"), path)
    cluster, overridden = dict(data), set()
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise UserError(f"--set {override}: write it as key=value")
        try:
            value = load_yaml(text)
        except ValueError:
            value = text
        group, dot, name = key.partition(".")
        if dot and group == "auth" and isinstance(auth := cluster.get("auth") or {}, dict):
            key, value = "auth", {**auth, name: value}
        (cluster if key in ClusterKeys.model_fields else flat)[key] = value
        overridden.add(key)
    if "ps_ip" in overridden:
        flat.pop("ps_ip", None)
    if cluster.get("worker_ips") and not isinstance(cluster["worker_ips"], list):
        cluster["worker_ips"] = [cluster["worker_ips"]]
    return make_config(cluster, flat, path, overridden)


def make_config(
    cluster: Mapping[str, Any], flat: Mapping[str, Any], source: Path | None = None, overridden: Container[str] = ()
) -> JobConfig:
    """Validate top-level and job_conf keys, given as mappings; those ``overridden`` are from a command line."""

    def where(key: str) -> str:
        return f"--set {key}" if key in overridden else str(source or "the configuration")

    actions = fedscale_actions()
    job_keys, fedscale_keys, params = {}, {}, {}
    for key, value in flat.items():
        if "." in key:
            params[key] = _scalar(expanded(key, value))
        elif key in JobKeys.model_fields:
            job_keys[key] = or_none(expanded(key, value))
        elif key in actions:
            fedscale_keys[key] = value
        elif key in ClusterKeys.model_fields:
            raise UserError(f"{where(key)}: {key} is no job_conf key; write it beside job_conf, at the left edge")
        else:
            raise UserError(
                f"{where(key)}: unknown job_conf key {key!r}{did_you_mean(key, [*JobKeys.model_fields, *actions])}"
            )
    _check_known(cluster, where)
    clean = {key: value for key, value in cluster.items() if value is not None}
    policy = or_none(fedscale_keys.get("gradient_policy"))
    if policy is not None:
        if not isinstance(policy, str) or policy not in _POLICY_METHODS:
            location, guess = where("gradient_policy"), did_you_mean(str(policy), _POLICY_METHODS)
            raise UserError(
                f"{location}: gradient_policy {policy!r} is not built; it may be {', '.join(_POLICY_METHODS)}{guess}"
            )
        job_keys.setdefault("method", _POLICY_METHODS[policy])
    # a driver that passes ps_ip beside job_conf gives it as a flag: one meaning, one place
    if "ps_ip" in clean and fedscale_keys.setdefault("ps_ip", clean["ps_ip"]) != clean["ps_ip"]:
        both = f"{clean['ps_ip']} beside job_conf and {fedscale_keys['ps_ip']} below it"
        raise UserError(f"{where('ps_ip')}: ps_ip is {both}; keep one of them")
    config = JobConfig(
        cluster=_validated(ClusterKeys, clean, where),
        job=_validated(JobKeys, job_keys, where),
        fedscale=fedscale_arguments(fedscale_keys, actions, where),
        params=params,
        given=dict(flat),
        source=source,
    )
    executor_slots(config)
    return config


def from_argv(argv: Sequence[str]) -> JobConfig:
    """Read the configuration that a driver passed to an entry script as ``--key value`` or ``--key=value``."""
    flat: dict[str, Any] = {}
    key = None
    for token in argv:
        if token.startswith("--") and len(token) > 2:
            key, equals, value = token[2:].partition("=")
            flat[key] = [value] if equals else []
        elif key is None:
            raise UserError(f"unexpected argument {token!r}: arguments are --key value")
        else:
            flat[key].append(token)
    return make_config({}, {key: " ".join(words) if words else True for key, words in flat.items()})


def to_argv(config: JobConfig, **extra: Any) -> list[str]:
    """Return ``--key=value`` for every key that the user set and for ``extra``; :func:`from_argv` reads it back."""
    pairs = {"ps_ip": config.fedscale.ps_ip, **config.given, **extra}
    return [f"--{key}={_as_text(key, value)}" for key, value in pairs.items()]


def shared_argv(config: JobConfig) -> list[str]:
    """Return the arguments that every executor of the job has, wherever it is; none is secret or of one process."""
    pairs = {key: value for key, value in config.given.items() if key not in OF_A_PROCESS | SECRET}
    return [f"--{key}={_as_text(key, value)}" for key, value in pairs.items()]


def with_values(config: JobConfig, **values: Any) -> JobConfig:
    """Return a copy of the job with some job_conf keys set anew, validated again."""
    cluster = {key: value for key, value in config.cluster.model_dump().items() if key != "ps_ip"}
    cluster["worker_ips"] = list(config.cluster.worker_ips)
    changed = make_config(cluster, {"ps_ip": config.fedscale.ps_ip, **config.given, **values}, config.source)
    return replace(changed, cluster=config.cluster)


def shipped_configs() -> dict[str, Path]:
    """Return the paths of the configurations that come with the package, by name."""
    for folder in (PACKAGE / "benchmark_configs", PACKAGE.parent / "benchmark_configs"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yml"))}
    return {}


def _find(conf: str | Path) -> Path:
    path = Path(conf).expanduser()
    if path.is_file():
        return path
    shipped = shipped_configs()
    if str(conf) in shipped:
        return shipped[str(conf)]
    if is_method(str(conf)):
        raise UserError(ask_for_data(str(conf)))
    method, _, data = str(conf).partition("_")
    if is_method(method) and data in data_presets():  # as files of earlier releases were named
        raise UserError(f"no configuration {str(conf)!r}: it is {method}{ON}{data}")
    raise UserError(
        f"no configuration {str(conf)!r}: give a path, the name of one of the {len(shipped)} shipped ones, such as "
        f"fedtrans_femnist, or a method and its data, such as fedavg --on digits{did_you_mean(str(conf), shipped)}"
    )


def _check_known(keys: Iterable[Any], where: Callable[[str], str]) -> None:
    for key in keys:
        if key in ClusterKeys.model_fields:
            continue
        if key in JobKeys.model_fields or key in fedscale_actions():
            raise UserError(f"{where(str(key))}: {key} is a job_conf key; write it below job_conf, as in '- {key}: …'")
        known = [*ClusterKeys.model_fields, "job_conf"]
        raise UserError(f"{where(str(key))}: unknown key {key!r}{did_you_mean(str(key), known)}")


def _flatten(job_conf: Any, path: Path) -> dict[str, Any]:
    shape = f"{path}: job_conf must be a list of one-key maps, as in '- rounds: 100'"
    if not isinstance(job_conf, list):
        raise UserError(shape)
    for entry in job_conf:
        if not isinstance(entry, dict):
            colon = isinstance(entry, str) and re.match(r"[\w.]+:\S", entry)
            raise UserError(f"{shape}; it has {entry!r:.60}{', without a space behind the colon' if colon else ''}")
    flat: dict[str, Any] = {}
    for entry in job_conf:
        for key, value in entry.items():
            if str(key) in flat:
                raise UserError(f"{path}: key {str(key)!r} is listed twice under job_conf; keep one of them")
            flat[str(key)] = value
    return flat


def _validated(model: type[BaseModel], values: Mapping[str, Any], where: Callable[[str], str]) -> Any:
    try:
        valid = model(**values)
        fault = truth_for_number({key: field.annotation for key, field in model.model_fields.items()}, values)
    except ValidationError as error:
        valid, fault = None, first_fault(error)
    if fault is None:
        return valid
    key, value, requirement = fault
    raise UserError(f"{where(re.split(r'[.[]', key)[0])}: key {key!r} is {value!r}; {requirement}")


def _scalar(value: Any) -> Any:
    """A number, truth value, None or list of them written as text, as on a command line; anything else as it is.

    A comma within brackets belongs to a value.
    """
    if isinstance(value, list):
        return [_scalar(one) for one in rejoined(value)]
    if not isinstance(value, str):
        return value
    if value.startswith("[") and value.endswith("]"):
        return [_scalar(part.strip()) for part in at_commas(value[1:-1]) if part.strip()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return {"true": True, "false": False, "none": None, "null": None}.get(value.lower(), value)


def _as_text(key: str, value: Any) -> str:
    if not isinstance(value, (list, tuple)):
        return str(value)
    # FedScale's lists are words; a method's need brackets, for a list of one is no number
    return f"[{', '.join(map(str, value))}]" if "." in key else " ".join(map(str, value))
