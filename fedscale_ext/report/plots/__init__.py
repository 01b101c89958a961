"""Every picture: of a job, of a comparison, of a data set, of traces."""
