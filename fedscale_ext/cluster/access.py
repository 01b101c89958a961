"""How a host is reached: the OpenSSH client's command line, and its failures in words."""

import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from fedscale_ext.cluster.joining import check_slots
from fedscale_ext.config.arguments import expanded
from fedscale_ext.config.executor_slots import executor_slots
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.driver.preparation import AGGREGATOR
from fedscale_ext.util.package import VERSION

REMOTE = "fedscale_ext.cluster.remote"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# nothing is asked, no host is taken on trust, nothing but a command runs, and a silent host is given up after 45 s
_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": "15",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
    "ControlPath": "none",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
}
# a shell that outlives the command: ssh tells no signal that ended one, but the exit code that shells make of it
_TELLING = '"$@"; exit $?'
# what ssh or the remote shell says, and what that means to the one who submitted
_TROUBLES = (
    (r"HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
     "{host} shows another host key than the known one: find out whether the machine was set up anew, then replace its "
     "key with `ssh-keygen -R {host}` and `ssh {host}`"),
    (r"Host key verification failed|host key is known",
     "the host key of {host} is not known: connect once by hand with `ssh {host}` and compare the key that it shows"),
    (r"Permission denied \(|Too many authentication failures",
     "{host} does not accept your ssh key: add it with `ssh-copy-id {host}`, or set ssh_user and ssh_private_key below "
     "auth"),
    (r"Could not resolve hostname", "there is no host called {host}: correct ps_ip or worker_ips"),
    (r"Connection refused|timed out|No route to host|unreachable",
     "{host} cannot be reached by ssh ({last_line}): is it up, and does sshd run there?"),
    (r"No module named '?fedscale_ext",
     "{host} has no fedscale_ext {version} in {python}: install it there, or set python to the interpreter of the "
     "environment that has it"),
    (r"No such file or directory|not found|cannot execute|Permission denied$",
     "{host} has no Python at {python}: set python to the interpreter of the environment in which fedscale_ext is "
     "installed there"),
)  # fmt: skip


@dataclass(frozen=True)
class Access:
    """Whom to log in as, and which interpreter and folder to use, on every host but this machine."""

    python: str
    user: str = ""
    private_key: str = ""
    ssh_config: str = ""

    @classmethod
    def of(cls, config: JobConfig) -> "Access":
        """Read the configuration's ``auth`` and ``python``; UserError for values that ssh must not be given."""
        auth, python = config.cluster.auth, config.cluster.python or sys.executable
        if auth.ssh_user and not re.fullmatch(_USER, auth.ssh_user):
            raise UserError(f"auth.ssh_user {auth.ssh_user!r} is no user's name: write letters, digits, '_', '.', '-'")
        if python[0] in "-~" or "$" in python or not python.isprintable():
            raise UserError(
                f"python {python!r} is not the path of an interpreter: write an absolute one, or one that begins in "
                "the home directory on each host, without '~' and variables"
            )
        return cls(python, auth.ssh_user or "", _file("ssh_private_key", auth.ssh_private_key),
                   _file("ssh_config", auth.ssh_config))  # fmt: skip

    def command(self, host: str, module: str = REMOTE, *words: str) -> list[str]:
        """The command line that runs a module of this package on a host, this machine included."""
        if is_here(host):
            return [sys.executable, "-m", module, *words]
        options = [word for key, value in _OPTIONS.items() for word in ("-o", f"{key}={value}")]
        files = (["-F", self.ssh_config] if self.ssh_config else []) + (
            ["-i", self.private_key, "-o", "IdentitiesOnly=yes"] if self.private_key else []
        )
        user = ["-l", self.user] if self.user else []
        remote = shlex.join(["sh", "-c", _TELLING, "sh", self.python, "-m", module, *words])
        return ["ssh", "-T", *files, *options, *user, "--", host, remote]

    def trouble(self, host: str, code: int, lines: Sequence[str]) -> str:
        """Explain why a host could not be used, from how its ssh ended."""
        text = "\n".join(lines)
        last = one_line(lines[-1], 200) if lines else f"exit code {code}"
        for pattern, sentence in _TROUBLES:
            if re.search(pattern, text):
                return sentence.format(host=host, last_line=last, python=self.python, version=VERSION)
        return f"{host} cannot be used: {last}"


def is_here(host: str) -> bool:
    """Tell whether a host is this machine, so that no ssh is needed."""
    if host in (*_LOOPBACK, platform.node()):
        return True
    return any(host == address.address for addresses in psutil.net_if_addrs().values() for address in addresses)


def hosts_by_process(config: JobConfig) -> dict[str, str]:
    """The host of each process by its name, the aggregator's first; UserError for a host that ssh must not be given."""
    host_of = {AGGREGATOR: config.fedscale.ps_ip}
    for rank, (host, _) in enumerate(executor_slots(config), start=1):
        host_of[f"executor {rank}"] = host
    for name, host in host_of.items():
        if host != "::1" and not re.fullmatch(_HOST, host):
            key = "ps_ip" if name == AGGREGATOR else "worker_ips"
            raise UserError(f"{key} names {host!r}, which is no host's name or IPv4 address: correct it")
    for worker in config.cluster.worker_ips:
        if not is_here(worker.strip()):
            check_slots(worker)
    if config.fedscale.ps_ip in _LOOPBACK:
        away = next((host for host in host_of.values() if not is_here(host)), None)
        if away is not None:
            raise UserError(
                f"ps_ip {config.fedscale.ps_ip} is this machine's own loopback address, which {away} does not reach: "
                "set ps_ip to the aggregator's address in their network"
            )
    return host_of


def _file(key: str, path_text: str | None) -> str:
    if not path_text:
        return ""
    path = Path(expanded(f"auth.{key}", path_text)).expanduser().absolute()
    if not path.is_file():
        raise UserError(f"auth.{key} names the file {path}, which does not exist: correct it")
    return str(path)
