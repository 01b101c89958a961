"""Names of the files in a job's log folder, for whoever needs no more than these."""

HEADER, METRICS, INTERNALS = "header.json", "metrics.jsonl", "internals.jsonl"
