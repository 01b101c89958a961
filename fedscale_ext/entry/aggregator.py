"""The aggregator's process, whichever method the configuration names; a YAML's ``aggregator_entry``."""

from fedscale_ext.entry.launch import run_aggregator

if __name__ == "__main__":
    run_aggregator()
