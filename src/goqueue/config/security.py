"""Authentication, access control and quotas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from goqueue.config.fields import choice, count, duration, setting, size
from goqueue.config.kinds import (
    HOUR_MS,
    SECOND_MS,
    UNLIMITED,
    File,
    KeySetLocation,
    Line,
    Login,
    Names,
    Optional,
    Origins,
    Principals,
    Ratio,
    Scopes,
    Switch,
    Words,
)
from goqueue.config.listener_kinds import ListenerAddress, PrincipalRules
from goqueue.model.credentials import PrincipalRule

AUTO, ON, OFF = "auto", "on", "off"
NO_CERTIFICATES = "none"
REQUESTED = "requested"
REQUIRED = "required"

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
        "enforced if a listener asks for credentials or certificates, or there is an initial "
        "administrator; set it alike on all nodes",
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
    oauth_jwks: str = setting(
        "",
        KeySetLocation(),
        "public keys of the issuer of tokens (JWKS): a file, or an address with https; with it, "
        "clients may authenticate with its tokens, over OAUTHBEARER and as bearer tokens",
    )
    oauth_issuer: str = setting(
        "", Line(), "issuer of the tokens: what their claim `iss` must be; required for tokens"
    )
    oauth_audience: str = setting(
        "",
        Line(),
        "what the claim `aud` of a token must contain, so that tokens for other systems are "
        "refused; required for tokens; `*` accepts any",
    )
    oauth_subject_claim: str = setting("sub", Line(), "claim of a token that names its user")
    oauth_scope_claim: str = setting("scope", Line(), "claim of a token that has its scopes")
    oauth_scopes: tuple[str, ...] = setting(
        (), Scopes(), "scopes that a token must have, separated by commas"
    )
    oauth_clock_skew_ms: int = duration(
        30 * SECOND_MS,
        "by which the clock of the issuer may differ; tokens are accepted for as long after their "
        "end",
        least=0,
    )
    oauth_jwks_refresh_ms: int = duration(
        HOUR_MS,
        "age at which the public keys are loaded again; an unknown key causes that at most once a "
        "minute",
        least=SECOND_MS,
    )
    tls_certificate: Path | None = setting(
        None,
        Optional(File()),
        "certificate chain of the listeners with TLS, in PEM; read again when the file changes",
    )
    tls_key: Path | None = setting(
        None,
        Optional(File()),
        "private key of that certificate, in PEM and without a password",
    )
    tls_client_auth: str = choice(
        NO_CERTIFICATES,
        (NO_CERTIFICATES, REQUESTED, REQUIRED),
        "whether listeners with TLS ask clients for a certificate; on an `ssl` listener it is the "
        "identity of the client, on a `sasl_ssl` listener it is only checked",
    )
    tls_client_authorities: Path | None = setting(
        None,
        Optional(File()),
        "certificates of the authorities that sign those of clients, in PEM",
    )
    tls_revocation_lists: Path | None = setting(
        None,
        Optional(File()),
        "revocation lists, in PEM, one of each authority that signs certificates of clients, which "
        "are refused while it has none that is up to date; when the file changes, connections of "
        "revoked certificates are closed within seconds",
    )
    tls_principal_rules: tuple[PrincipalRule, ...] = setting(
        (),
        PrincipalRules(),
        "how the subject of a client certificate becomes the name of a user, in the syntax of "
        "Kafka's `ssl.principal.mapping.rules`; if empty, the name is the whole subject",
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
    audit: str = choice(
        AUTO,
        (AUTO, ON, OFF),
        "write denials, failed authentication and changes to the topic `__audit`; `auto`: if "
        "access is controlled",
    )
    audit_reads: float = setting(
        0.0,
        Ratio(),
        "share of the calls that read, write or consume messages, or only ask, that is audited too",
    )
    audit_interval_ms: int = duration(
        10_000,
        "equal events within this time are merged after the first; what is not written when a "
        "process is killed are their counts",
        least=1_000,
        most=3_600_000,
    )
    audit_retention_ms: int = duration(
        30 * 24 * 3_600_000, "how long the audit log is kept; -1 is no limit", least=UNLIMITED
    )
    audit_retention_bytes: int = size(
        1 << 30, "how large the audit log may become; -1 is no limit", least=UNLIMITED
    )
    audit_excluded_principals: tuple[str, ...] = setting(
        (), Principals(), "principals whose calls are audited only if they are denied"
    )
    audit_excluded_topics: tuple[str, ...] = setting(
        (), Names(), "topics of which calls are audited only if they are denied"
    )
    audit_file: Path | None = setting(
        None, Optional(File()), "a file to which events are written as well, one per line"
    )
    audit_file_bytes: int = size(
        64 << 20, "size at which the audit file is renamed and a new one begun", least=1 << 16
    )
    audit_files_max: int = count(
        5, "number of audit files that are kept, the current one included", least=1, most=1_000
    )
    open_health: bool = setting(
        True,
        Switch(),
        "serve `/healthz`, `/readyz` and `/livez` without credentials, also on listeners that "
        "require them, because probes rarely have any",
    )
    open_metrics: bool = setting(
        False,
        Switch(),
        "serve `/metrics` without credentials, also on listeners that require them; whoever "
        "reaches the listener learns the names of all topics and groups",
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        Origins(),
        "origins of web pages that may use the HTTP listeners; pages of other sites are refused",
    )

    def must_authenticate(self, listener: ListenerAddress) -> bool:
        """Return whether clients of a listener must prove who they are."""
        has_certificate = listener.is_encrypted and self.tls_client_auth == REQUIRED
        return listener.has_sasl or has_certificate

    @property
    def has_external_identities(self) -> bool:
        """Return whether clients can have identities of which the cluster has no user."""
        return bool(self.oauth_jwks) or self.tls_client_auth != NO_CERTIFICATES

    def may_authenticate(self, listener: ListenerAddress) -> bool:
        """Return whether a listener asks its clients who they are."""
        asks_for_certificates = self.tls_client_auth != NO_CERTIFICATES
        return listener.has_sasl or (listener.is_encrypted and asks_for_certificates)
