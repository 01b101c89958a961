"""Writes docs/configuration.md from the models that validate a configuration.

Run ``python -m fedscale_ext.config.reference > docs/configuration.md`` after changing a key.
"""

from fedscale_ext.config.arguments import allowed, default_of, fedscale_actions
from fedscale_ext.config.key_groups import FEDSCALE_MEANINGS, GROUPS
from fedscale_ext.config.keys import JobKeys
from fedscale_ext.util.ranges import value_text, values

_HEAD = """# Configuration

A configuration is a FedScale YAML file. `fedscale config show METHOD --on DATA` writes a complete one. This page lists
the keys of any job [by subject](#all-keys). A method's hyperparameters are on its page
([all methods](methods/index.md)). `fedscale methods options METHOD` shows them in a terminal.

## How keys are read

- `--set key=value` on the command line overrides any key.
- `$VARIABLES` are expanded. A variable that is not set is an error.
- An unknown key is an error, and the sentence names the most similar key. This holds for the keys of all installed
  methods.
- Correct keys of another method have no effect. Nor have some keys that another key switches off, as `capacity_spread`
  under `capacity_rule: deadline`, or `scalefl.gamma` under `scalefl.self_kd: false`. A note says so when the job
  starts. A sweep says it once, for keys that none of its jobs reads.
- Other such keys are refused, as `adam_beta1` without `client_optimizer: adam`.
- If a method or model does not exist, or does not take the data, the error comes before any process starts.

## FedScale's keys

Top-level keys (`ps_ip`, `worker_ips`, `exp_path`, `aggregator_entry`, `executor_entry`, `auth`, `setup_commands`) and
every `job_conf` key of FedScale 1.0's `config_parser` keep their names, meanings and defaults. Some have no effect
here, such as `num_loaders` and `weight_decay`, and a note says so. The differences are:

- Booleans are read as such: `use_cuda: False` is false. FedScale reads any text as true.
- `device_conf_file` defaults to `resampled` ([devices](#devices)).
- `rounds: R` trains R rounds.
- `gradient_policy: fed-prox`, `fed-yogi` and `q-fedavg` choose the methods `fedprox`, `fedyogi` and `qfedavg`.
- `worker_ips: []` starts no executor: the job waits for [those that join](cluster.md#executors-that-join).
- `worker_ips: localhost`, or no `worker_ips`, starts one executor per core that this process can use, each with one
  thread. With `use_cuda: True`, it starts one.
- Slots override that: `localhost:[4]` starts four executors, `localhost:[2,2]` two on each of two GPUs. FedScale's own
  driver needs slots. On a CPU, results do not depend on the number of executors.
- `wandb_token: login` works on a machine that is logged in
  ([what is shown](running.md#tensorboard-weights-and-biases)).
- `fedscale driver submit` starts processes on the hosts of `ps_ip` and `worker_ips`. For it, this package adds the keys
  `python`, `work_dir` and `auth.ssh_config` ([several machines](cluster.md)).
- `auth` takes only `ssh_config` and FedScale's `ssh_user` and `ssh_private_key`.
- `setup_commands` that need a shell do not run.
- `aggregator_entry` and `executor_entry` can be left out; FedScale's own driver needs them. Only `method` decides what
  trains.
- `ps_port` is 29500 by default. `auto` (or 0) lets `fedscale driver start` pick a free port.
- `engine`, `task`, `experiment_mode` and `test_ratio` accept `pytorch`, `cv`, `simulation` and 1.0 only. Other values
  are errors.

`python -m fedscale_ext.config.reference` writes this page.
"""

# each key of a job or method is an entry of this form
_ENTRY = "- **`{key}`** · {values} · default `{default}`<br>\n  {meaning}"


def reference() -> str:
    """Return docs/configuration.md as Markdown."""
    links = ", ".join(f"[{group.title}](#{group.title.lower().replace(' ', '-')})" for group in GROUPS)
    lines = [_HEAD, "## All keys", "", f"{links}."]
    for group in GROUPS:
        lines += [
            "",
            f"## {group.title}",
            "",
            *([group.about, ""] if group.about else []),
            *map(_job_entry, group.keys),
        ]
    return "\n".join(lines) + "\n"


def _job_entry(key: str) -> str:
    field = JobKeys.model_fields.get(key)
    if field is not None:
        allowed_values, default = values(field.annotation, field.metadata), value_text(field.default)
        return entry(key, allowed_values, default, field.description or "")
    action = fedscale_actions()[key]
    return entry(key, allowed(key, action), value_text(default_of(key, action)), FEDSCALE_MEANINGS[key])


def entry(key: str, allowed_values: str, default: str, meaning: str) -> str:
    """Return a key's entry as Markdown."""
    return _ENTRY.format(key=key, values=allowed_values, default=default, meaning=meaning)


if __name__ == "__main__":
    print(reference(), end="")
