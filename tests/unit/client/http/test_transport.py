"""What is sent again, how often, and after which waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import httpx
import msgspec
import pytest

from goqueue.client.errors import ConnectionLost, Unreachable
from goqueue.client.http.failures import Failure, unreachable
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.settings import HttpSettings, RetrySettings
from goqueue.client.http.transport import AsyncTransport, Attempts, Transport
from goqueue.model.errors import InvalidRequest, RequestTimedOut, StorageFull, UnknownTopic
from goqueue.wire.carrier.problems import problem_of

Answer = httpx.Response | Exception
GOOD = httpx.Response(200, content=b"done")


def problem(error: Exception) -> httpx.Response:
    told = problem_of(error)  # type: ignore[arg-type]
    return httpx.Response(told.status, content=msgspec.json.encode(told))


class Network:
    """Answers requests in turn, and remembers them."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)  # each is read once


def request_with(repeat: Repeat = Repeat.IDEMPOTENT) -> Request[bytes]:
    return Request("POST", "/v1/x", lambda data: data, body=b"{}", repeat=repeat)


def send(network: Network, repeat: Repeat = Repeat.IDEMPOTENT, **retry: bool | int) -> bytes:
    """Send with threads and with coroutines, which must do the same."""
    settings = HttpSettings(
        retry=RetrySettings(backoff_ms_min=1, backoff_ms_max=1, **retry)  # type: ignore[arg-type]
    )
    answers = list(network.answers)
    transport = Transport(
        "h:1", settings, network=httpx.MockTransport(network), sleep=lambda _: None
    )
    outcome = _outcome(lambda: transport.send(request_with(repeat)))
    seen = len(network.seen)

    async def again() -> bytes:
        carrier = AsyncTransport("h:1", settings, network=httpx.MockTransport(network))
        try:
            return await carrier.send(request_with(repeat))
        finally:
            await carrier.close()

    network.answers = answers
    other = _outcome(lambda: asyncio.run(again()))
    assert type(other) is type(outcome)
    assert len(network.seen) == 2 * seen
    transport.close()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _outcome(work: Callable[[], bytes]) -> bytes | Exception:
    try:
        return work()
    except Exception as error:
        return error


def test_a_request_without_a_connection_is_always_sent_again() -> None:
    network = Network(httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), GOOD)
    assert send(network, Repeat.PUBLISHES) == b"done"


def test_an_answer_that_says_come_back_is_obeyed() -> None:
    network = Network(problem(StorageFull("full")), httpx.Response(429), GOOD)
    assert send(network, Repeat.PUBLISHES) == b"done"


def test_a_refusal_is_final() -> None:
    with pytest.raises(UnknownTopic):
        send(Network(problem(UnknownTopic("orders"))))


@pytest.mark.parametrize(
    ("lost", "kind"),
    [
        (httpx.ReadError("reset"), ConnectionLost),
        (httpx.RemoteProtocolError("gone"), ConnectionLost),
        (httpx.ReadTimeout("late"), RequestTimedOut),
    ],
)
def test_a_publish_whose_answer_is_lost_is_repeated_only_if_that_is_allowed(
    lost: Exception, kind: type[Exception]
) -> None:
    assert send(Network(lost, GOOD), Repeat.IDEMPOTENT) == b"done"
    assert send(Network(lost, GOOD), Repeat.PUBLISHES, repeats_publishes=True) == b"done"
    with pytest.raises(kind, match="may or may not have been executed"):
        send(Network(lost, GOOD), Repeat.PUBLISHES)
    with pytest.raises(kind):
        send(Network(lost, GOOD), Repeat.AMBIGUOUS, repeats_publishes=True)


def test_attempts_are_counted() -> None:
    network = Network(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(Unreachable, match="No broker answers at http://h:1"):
        send(network, retries_max=3)


def test_waits_double_up_to_their_bound_and_are_drawn_from_the_whole_range() -> None:
    settings = RetrySettings(retries_max=1000, backoff_ms_min=100, backoff_ms_max=1600)
    failure = unreachable("h", "refused")
    for number, bound in enumerate([0.1, 0.2, 0.4, 0.8, 1.6, 1.6]):
        waits = []
        for seed in range(200):
            attempts = Attempts(request_with(), settings, Random(seed), failed=number)
            waits.append(attempts.wait_seconds(failure))
        assert max(waits) <= bound
        assert max(waits) > bound * 0.9
        assert min(waits) < bound * 0.1


def test_the_broker_may_ask_for_more_patience() -> None:
    failure = Failure(StorageFull("full"), is_passing=True, wait_seconds_min=9.0)
    assert Attempts(request_with(), RetrySettings(), Random(1)).wait_seconds(failure) == 9.0


def test_a_long_poll_is_given_its_time() -> None:
    network = Network(GOOD)
    settings = HttpSettings(answer_ms_max=1000)
    transport = Transport("h:1", settings, network=httpx.MockTransport(network))
    transport.send(Request("GET", "/v1/x", lambda data: data, {"wait_ms": "20000"}, wait_ms=20_000))
    assert network.seen[0].extensions["timeout"]["read"] == 21.0
    transport.close()


def test_a_closed_client_says_so() -> None:
    transport = Transport("h:1", HttpSettings(), network=httpx.MockTransport(Network()))
    transport.close()
    with pytest.raises(InvalidRequest, match="closed"):
        transport.send(request_with())


def test_headers_of_the_settings_go_with_every_request() -> None:
    network = Network(GOOD)
    settings = HttpSettings(headers={"authorization": "Bearer x"})
    transport = Transport("h:1", settings, network=httpx.MockTransport(network))
    transport.send(request_with())
    assert network.seen[0].headers["authorization"] == "Bearer x"
    assert network.seen[0].headers["content-type"] == "application/json"
    transport.close()
