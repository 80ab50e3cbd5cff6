"""Share groups: membership, records under leases, acknowledgements, offsets."""

from goqueue.broker.gate.areas.share_groups.area import ShareGroupsArea
from goqueue.broker.gate.areas.share_groups.fetching import ShareFetched, SharePart

__all__ = ["ShareFetched", "ShareGroupsArea", "SharePart"]
