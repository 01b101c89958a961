"""From files of any kind to a data folder: labels, shapes, partitions among clients."""
