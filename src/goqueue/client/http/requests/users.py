"""Users and their keys."""

from __future__ import annotations

from goqueue.client.http.moments import Duration, Moment, duration_ms, moment_ms
from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    body_with,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.wire.http.bodies import users as bodies
from goqueue.wire.http.bodies.users import Key, KeyKind, NewKey, User, Users, Whoami

_read_whoami = reading(Whoami)
_read_users = reading(Users)
_read_user = reading(User)
_read_keys = reading(bodies.Keys)
_read_key = reading(Key)
_read_new_key = reading(NewKey)


class UserRequests:
    def whoami(self) -> Request[Whoami]:
        """Return who the broker takes this client for."""
        return Request("GET", path_of("whoami"), _read_whoami)

    def list_page(self, *, prefix: str = "", limit: int = 100, cursor: str = "") -> Request[Users]:
        """Return users by name; the cursor of the last page is empty."""
        query = query_of(bodies.ListUsers(prefix=prefix, limit=limit, cursor=cursor))
        return Request("GET", path_of("users"), _read_users, query)

    def get(self, name: str) -> Request[User]:
        """Return a user."""
        return Request("GET", path_of("users", name), _read_user)

    def create(
        self, name: str, password: str | None = None, *, tenant: str | None = None
    ) -> Request[User]:
        """Create a user; without a password it can use keys, certificates and tokens only."""
        body = body_with(name=name, password=password, tenant=tenant)
        return Request("POST", path_of("users"), _read_user, body=body, repeat=Repeat.AMBIGUOUS)

    def set_password(self, name: str, password: str) -> Request[None]:
        """Replace the password of a user."""
        path = path_of("users", name, "password")
        return Request("PUT", path, nothing, body=body_of(bodies.SetPassword(password=password)))

    def disable(self, name: str) -> Request[User]:
        """Refuse all credentials of a user, and end its sessions."""
        return _change(name, is_disabled=True)

    def enable(self, name: str) -> Request[User]:
        """Accept the credentials of a disabled user again."""
        return _change(name, is_disabled=False)

    def delete(self, name: str) -> Request[None]:
        """Delete a user and its keys."""
        return Request("DELETE", path_of("users", name), nothing, repeat=Repeat.AMBIGUOUS)


class KeyRequests:
    def list_all(self, user: str) -> Request[list[Key]]:
        """Return the keys of a user, the oldest first."""
        return Request("GET", path_of("users", user, "keys"), lambda data: _read_keys(data).keys)

    def get(self, key_id: str) -> Request[Key]:
        """Return a key."""
        return Request("GET", path_of("keys", key_id), _read_key)

    def create(
        self,
        user: str,
        *,
        kind: KeyKind = "api",
        description: str = "",
        expires_at: Moment | None = None,
        ttl: Duration | None = None,
    ) -> Request[NewKey]:
        """Create a key of a user; its secret is in this response only."""
        body = bodies.CreateKey(
            kind=kind,
            description=description,
            expires_at=None if expires_at is None else moment_ms(expires_at),
            ttl_ms=None if ttl is None else duration_ms(ttl),
        )
        path = path_of("users", user, "keys")
        return Request("POST", path, _read_new_key, body=body_of(body), repeat=Repeat.AMBIGUOUS)

    def rotate(
        self,
        key_id: str,
        *,
        overlap: Duration | None = None,
        expires_at: Moment | None = None,
        ttl: Duration | None = None,
    ) -> Request[NewKey]:
        """Create a key like another one, which stays valid for the overlap: by default a day."""
        body = body_with(
            overlap_ms=None if overlap is None else duration_ms(overlap),
            expires_at=None if expires_at is None else moment_ms(expires_at),
            ttl_ms=None if ttl is None else duration_ms(ttl),
        )
        path = path_of("keys", key_id, "rotate")
        return Request("POST", path, _read_new_key, body=body, repeat=Repeat.AMBIGUOUS)

    def delete(self, key_id: str) -> Request[None]:
        """Delete a key, and end its sessions."""
        return Request("DELETE", path_of("keys", key_id), nothing, repeat=Repeat.AMBIGUOUS)


def _change(name: str, *, is_disabled: bool) -> Request[User]:
    body = body_of(bodies.ChangeUser(disabled=is_disabled))
    return Request("PATCH", path_of("users", name), _read_user, body=body)
