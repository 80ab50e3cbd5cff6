"""Other message brokers, started from their own releases to be measured and compared with.

Nothing here is needed to run or test GoQueue. A peer that cannot be had on this machine raises
`PeerUnavailable` with the reason, so that a benchmark can leave its row out and say why.
"""


class PeerUnavailable(Exception):
    """The peer cannot be installed or started here. The text says what is missing."""


__all__ = ["PeerUnavailable"]
