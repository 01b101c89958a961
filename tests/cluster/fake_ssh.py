"""Stands for OpenSSH's client: runs the remote command on this machine, as a "host" with a home of its own.

FAKE_HOSTS names a folder with one folder per host, which is its home; a file `fault` in it makes the host fail as ssh
would. Everything of a host runs in one session, whose number is written to `session`, so that a test can kill it.
What ssh was called with goes to `calls`, a JSON line each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FAULTS = {
    "unknown key": (255, "No ED25519 host key is known for {host} and you have requested strict checking.\n"
                         "Host key verification failed."),
    "changed key": (255, "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed."),
    "no access": (255, "user@{host}: Permission denied (publickey)."),
    "refused": (255, "ssh: connect to host {host} port 22: Connection refused"),
    "no package": (1, "/usr/bin/python3: Error while finding module specification for 'fedscale_ext.cluster.remote' "
                      "(ModuleNotFoundError: No module named 'fedscale_ext')"),
    "no python": (127, "bash: line 1: /opt/python: No such file or directory"),
}  # fmt: skip

separator = sys.argv.index("--")
host, remote = sys.argv[separator + 1], sys.argv[separator + 2 :]
home = Path(os.environ["FAKE_HOSTS"], host)
with open(Path(os.environ["FAKE_HOSTS"], "calls"), "a", encoding="utf-8") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\n")
if not home.is_dir():
    print(f"ssh: Could not resolve hostname {host}: Name or service not known", file=sys.stderr)
    sys.exit(255)
fault = (home / "fault").read_text() if (home / "fault").exists() else ""
if fault in FAULTS:
    code, text = FAULTS[fault]
    print(text.format(host=host), file=sys.stderr)
    sys.exit(code)
keep = ("PATH", "PYTHONPATH", "LANG", "OMP_NUM_THREADS", "FEDSCALE_EXT_STATE_TEST")
env = {key: os.environ[key] for key in keep if key in os.environ} | {"HOME": str(home), "FAKE_HOST": host}
if fault.startswith("PYTHONPATH="):
    env["PYTHONPATH"] = fault.partition("=")[2]
# as sshd does: the user's shell reads the words that ssh joined
process = subprocess.Popen(["/bin/sh", "-c", " ".join(remote)], cwd=home, env=env, start_new_session=True)
(home / "session").write_text(str(process.pid))
code = process.wait()
print(f"Connection to {host} closed by remote host.", file=sys.stderr)
sys.exit(255 if code < 0 else code)
