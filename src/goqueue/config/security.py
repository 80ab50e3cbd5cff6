"""Authentication, access control and quotas."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.config.fields import choice, duration, setting
from goqueue.config.kinds import Login, Principals, Switch, Words

AUTO, ON, OFF = "auto", "on", "off"

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Who may do what. How clients authenticate is a matter of each listener."""

    sasl_mechanisms: tuple[str, ...] = setting(
        SASL_MECHANISMS,
        Words(SASL_MECHANISMS),
        "mechanisms that Kafka listeners with authentication offer",
    )
    access_control: str = choice(
        AUTO,
        (AUTO, ON, OFF),
        "whether clients may only do what access control lists allow; with `auto`, they are "
        "enforced if a listener requires authentication or there is an initial administrator; set "
        "it alike on all nodes",
    )
    allow_if_no_acl: bool = setting(
        False,
        Switch(),
        "allow everybody to use a resource that no access control list is about",
    )
    connections_max_reauth_ms: int = duration(
        0,
        "time after which a Kafka client must authenticate again on its connection, which it does "
        "by itself (KIP-368); 0 requires it only when a token or key expires",
        least=0,
    )
    super_users: tuple[str, ...] = setting(
        (),
        Principals(),
        "principals that may do everything, such as `User:admin`; the initial administrator is one",
    )
    initial_admin: tuple[str, str] = setting(
        ("", ""),
        Login(),
        "the first user, as NAME:PASSWORD; it is created when the cluster has no users, and is a "
        "super user as long as it is named here; its password is not changed later",
        "--initial-admin",
    )
