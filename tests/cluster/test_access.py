"""The command line that reaches a host, and what its failures mean."""

import itertools
import subprocess
import sys

import pytest

from fedscale_ext.cluster import access
from fedscale_ext.cluster.access import Access
from fedscale_ext.config.job_config import load_config, make_config
from fedscale_ext.core.errors import UserError


def config(**cluster):
    return make_config(cluster, {"use_cuda": False})


def test_ssh_asks_nothing_and_takes_no_host_on_trust(tmp_path):
    key = tmp_path / "a key"
    key.touch()
    argv = Access("/opt/env/bin/python", "fed", str(key)).command("10.0.0.2")
    options = {word for before, word in itertools.pairwise(argv) if before == "-o"}
    assert argv[0] == "ssh"
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no", "IdentitiesOnly=yes"} <= options
    assert argv[argv.index("-i") + 1] == str(key) and argv[argv.index("-l") + 1] == "fed"
    assert argv[-3:-1] == ["--", "10.0.0.2"]
    assert argv[-1] == """sh -c '"$@"; exit $?' sh /opt/env/bin/python -m fedscale_ext.cluster.remote"""


def test_the_remote_shell_sees_the_words_as_they_are(tmp_path):
    words = ["/tmp/it's $HOME; touch /tmp/x", "`id`", "a\nb", "ü*"]
    program = tmp_path / "it's python"
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    remote = Access(str(program)).command("h", "m", *words)[-1]
    done = subprocess.run(["/bin/sh", "-c", remote], capture_output=True, text=True)
    assert done.stdout.split("\0")[:-1] == ["-m", "m", *words]


def test_the_remote_shell_tells_which_signal_ended_the_command(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    assert (
        subprocess.run(["/bin/sh", "-c", Access(str(program)).command("h")[-1]], capture_output=True).returncode == 137
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_needs_no_ssh(host):
    assert Access("elsewhere").command(host) == [sys.executable, "-m", access.REMOTE]


def test_places_name_each_process_and_its_host():
    host_of = access.hosts_by_process(config(ps_ip="10.0.0.1", worker_ips=["10.0.0.1:[1]", "node-2.lan:[1,1]"]))
    assert host_of == {"aggregator": "10.0.0.1", "executor 1": "10.0.0.1", "executor 2": "node-2.lan",
                     "executor 3": "node-2.lan"}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"ps_ip": "-oProxyCommand=sh", "worker_ips": ["10.0.0.2:[1]"]}, "ps_ip names '-oProxyCommand=sh'"),
        ({"ps_ip": "10.0.0.1", "worker_ips": ["-oProxyCommand=sh:[1]"]}, "worker_ips names '-oProxyCommand=sh'"),
        ({"ps_ip": "10.0.0.1", "worker_ips": ["a;reboot:[1]"]}, "worker_ips names 'a;reboot'"),
        ({"ps_ip": "10.0.0.1", "worker_ips": ["user@10.0.0.2:[1]"]}, "worker_ips names 'user@10.0.0.2'"),
        ({"ps_ip": "127.0.0.1", "worker_ips": ["10.0.0.2:[1]"]}, "set ps_ip to the aggregator's address"),
        ({"ps_ip": "10.0.0.1", "worker_ips": ["10.0.0.2"]}, "write 10.0.0.2:[n]"),
    ],
)
def test_hosts_that_cannot_be_used_are_refused(keys, sentence):
    with pytest.raises(UserError) as error:
        access.hosts_by_process(config(**keys))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"auth": {"ssh_user": "-oProxyCommand=sh"}}, "is no user's name"),
        ({"auth": {"ssh_private_key": "/no/such/key"}}, "auth.ssh_private_key names the file /no/such/key"),
        ({"auth": {"ssh_config": "/no/such/config"}}, "auth.ssh_config names the file"),
        ({"python": "~/env/bin/python"}, "is not the path of an interpreter"),
        ({"python": "-c"}, "is not the path of an interpreter"),
    ],
)
def test_what_ssh_must_not_be_given_is_refused(keys, sentence):
    with pytest.raises(UserError) as error:
        Access.of(config(**keys))
    assert sentence in str(error.value)


def test_fedscales_keys_are_read(tmp_path):
    key = tmp_path / "id"
    key.touch()
    conf = tmp_path / "conf.yml"
    conf.write_text(f"ps_ip: 10.0.0.1\nworker_ips:\n  - 10.0.0.1:[4,4]\nauth:\n  ssh_user: fed\n"
                    f"  ssh_private_key: {key}\nsetup_commands:\njob_conf:\n  - job_name: x\n")  # fmt: skip
    assert Access.of(load_config(conf)) == Access(sys.executable, "fed", str(key))
    assert list(access.hosts_by_process(load_config(conf)).values()) == ["10.0.0.1"] * 9


@pytest.mark.parametrize(
    ("code", "said", "sentence"),
    [
        (255, "No ED25519 host key is known for h and you have requested strict checking.\n"
              "Host key verification failed.", "the host key of h is not known"),
        (255, "@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\nHost key verification failed.",
         "h shows another host key than the known one"),
        (255, "u@h: Permission denied (publickey).", "h does not accept your ssh key"),
        (255, "ssh: Could not resolve hostname h: Name or service not known", "there is no host called h"),
        (255, "ssh: connect to host h port 22: No route to host", "h cannot be reached by ssh"),
        (255, "ssh: connect to host h port 22: Connection timed out", "h cannot be reached by ssh"),
        (1, "python3: No module named fedscale_ext", "h has no fedscale_ext"),
        (127, "bash: line 1: /opt/python: No such file or directory", "h has no Python at python"),
        (126, "bash: line 1: /opt/python: Permission denied", "h has no Python at python"),
        (1, "something else\nat last this", "h cannot be used: at last this"),
        (9, "", "h cannot be used: exit code 9"),
    ],
)  # fmt: skip
def test_failures_in_words(code, said, sentence):
    assert sentence in Access("python").trouble("h", code, said.splitlines())
