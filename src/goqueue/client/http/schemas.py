"""The schema registry of a broker, for threads and for coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from goqueue.client.http.requests.schemas import SchemaRequests, SchemaVersion
from goqueue.client.http.shells import AsyncShell, Shell, async_call, call

_PAGE = 1000


class Schemas(Shell[SchemaRequests]):
    """Schemas of messages, by subject and version."""

    register = call(SchemaRequests.register)
    get = call(SchemaRequests.get)
    get_by_id = call(SchemaRequests.get_by_id)
    get_by_guid = call(SchemaRequests.get_by_guid)
    subjects = call(SchemaRequests.subjects)
    list_page = call(SchemaRequests.list_page)
    check = call(SchemaRequests.check)
    config = call(SchemaRequests.config)
    configure = call(SchemaRequests.configure)
    unset_config = call(SchemaRequests.unset_config)
    delete = call(SchemaRequests.delete)
    delete_version = call(SchemaRequests.delete_version)

    def list_all(
        self, *, prefix: str = "", latest_only: bool = False, deleted: bool = False
    ) -> Iterator[SchemaVersion]:
        """Yield the versions of all subjects with a name prefix, fetched page by page."""
        offset = 0
        while True:
            page = self.list_page(
                prefix=prefix, latest_only=latest_only, deleted=deleted, offset=offset, limit=_PAGE
            )
            yield from page
            offset += len(page)
            if len(page) < _PAGE:
                return


class AsyncSchemas(AsyncShell[SchemaRequests]):
    """Schemas of messages, by subject and version."""

    register = async_call(SchemaRequests.register)
    get = async_call(SchemaRequests.get)
    get_by_id = async_call(SchemaRequests.get_by_id)
    get_by_guid = async_call(SchemaRequests.get_by_guid)
    subjects = async_call(SchemaRequests.subjects)
    list_page = async_call(SchemaRequests.list_page)
    check = async_call(SchemaRequests.check)
    config = async_call(SchemaRequests.config)
    configure = async_call(SchemaRequests.configure)
    unset_config = async_call(SchemaRequests.unset_config)
    delete = async_call(SchemaRequests.delete)
    delete_version = async_call(SchemaRequests.delete_version)

    async def list_all(
        self, *, prefix: str = "", latest_only: bool = False, deleted: bool = False
    ) -> AsyncIterator[SchemaVersion]:
        """Yield the versions of all subjects with a name prefix, fetched page by page."""
        offset = 0
        while True:
            page = await self.list_page(
                prefix=prefix, latest_only=latest_only, deleted=deleted, offset=offset, limit=_PAGE
            )
            for one in page:
                yield one
            offset += len(page)
            if len(page) < _PAGE:
                return
