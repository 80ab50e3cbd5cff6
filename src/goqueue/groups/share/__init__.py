"""Members of share groups: who they are, what they subscribe to, and which partitions they read.

Several members may read one partition, since the group's leases decide who gets which record. So a
change of the assignment needs no agreement between members, and nothing here is persisted: a new
coordinator answers that it does not know a member, and the member joins again. What members do with
records is outside the scope of this package.
"""

from goqueue.groups.share.assignor import assign
from goqueue.groups.share.membership import MEMBERS_MAX, TOPICS_MAX, MemberTimes, ShareMembership

__all__ = ["MEMBERS_MAX", "TOPICS_MAX", "MemberTimes", "ShareMembership", "assign"]
