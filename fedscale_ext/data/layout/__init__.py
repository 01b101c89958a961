"""FedScale's layout of a data folder: its csv files of samples, labels and ``dataset.json``, read and checked."""
