"""Authentication, access control and quotas."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.config.fields import setting
from goqueue.config.kinds import Login, Principals, Words


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Who may do what. How clients authenticate is a matter of each listener."""

    sasl_mechanisms: tuple[str, ...] = setting(
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        Words(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        "mechanisms that Kafka listeners with authentication offer",
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
