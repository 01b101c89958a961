"""Brings a job's results from the aggregator's host: a tar archive over ssh, unpacked as any stranger's would be."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from fedscale_ext.cluster.access import Access
from fedscale_ext.config.arguments import expanded
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.download.unpack import unpack

_MOST = 64 << 30  # bytes
_LEFT_THERE = "checkpoints"  # what a job goes on from, there


def fetch(access: Access, host: str, there: str, here: Path) -> None:
    """Write the files of a job's folder ``there`` on a host to the new folder ``here``, but for its checkpoints."""
    here.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=here.parent, prefix=".fetched-") as temporary:
        archive = Path(temporary, "results.tar")
        with archive.open("wb") as file:
            command = access.command(host, "fedscale_ext.cluster.results", there)
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise UserError(access.trouble(host, done.returncode, done.stderr.splitlines()))
        unpack(archive, Path(temporary, "files"), most=_MOST)
        Path(temporary, "files").rename(here)


def main() -> None:
    """Write an archive of the folder that the command line names to standard output."""
    folder = Path(expanded("log_path", sys.argv[1])).expanduser()
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not path.is_symlink() and name.parts[0] != _LEFT_THERE:
                archive.add(path, str(name), recursive=False)


if __name__ == "__main__":
    main()
