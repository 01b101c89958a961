"""The processes of a job, from a command line to an exit code: aggregator, executor, a whole job in one process."""
