"""``python -m fedscale_ext.cluster.entry EXP_PATH ENTRY ARGUMENTS…``: runs an entry wherever this machine has it."""

import os
import sys

from fedscale_ext.config.job_config import entry_path
from fedscale_ext.core.errors import UserError


def main() -> None:
    """Become the entry's process."""
    exp_path, entry, *words = sys.argv[1:]
    try:
        file = entry_path(exp_path, entry)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    os.execv(sys.executable, [sys.executable, str(file), *words])


if __name__ == "__main__":
    main()
