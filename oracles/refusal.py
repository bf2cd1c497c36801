"""The one exception that stands for a refusal, apart so that every module can raise it."""


class Refused(RuntimeError):
    """The checkpoint or the request is not one that an honest oracle can be made of."""
