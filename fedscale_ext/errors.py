"""The one error that a user sees."""


class UserError(Exception):
    """Bad input in one sentence: what is wrong, where, and what to do about it.

    Every command turns it into that sentence on stderr and exit code 2, without a traceback.
    """
