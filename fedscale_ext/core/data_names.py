"""Names of data sets: one spelling, and FedScale's as aliases."""

# FedScale's spelling, in lower case -> ours
_ALIASES = {
    "mnist": "mnist",
    "fashionmnist": "fashionmnist",
    "openimg": "openimage",
    "google_speech": "speech",
    "google_speech12": "speech12",
}


def data_set_name(name: str) -> str:
    """Return our spelling of a data set's name, the name itself where it is no alias."""
    return _ALIASES.get(name.lower(), name)
