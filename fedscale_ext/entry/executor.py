"""An executor's process, whichever method the configuration names; a YAML's ``executor_entry``."""

from fedscale_ext.entry.launch import run_executor

if __name__ == "__main__":
    run_executor()
