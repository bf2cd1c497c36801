"""The one exception that stands for a refusal, apart so that every module can raise it."""


class Refused(RuntimeError):
    """The checkpoint or the request is not one that an honest oracle can be made of.

    `code` is the stable name of a rule of configs, the same that `dflash-parity` gives; empty for other refusals.
    """

    def __init__(self, message: str, code: str = ""):
        super().__init__(message)
        self.code = code
