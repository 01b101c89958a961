"""From a YAML file or a command line to a checked job: keys, hyperparameters of methods, FedScale's arguments."""
