"""The cost of TLS: produce and consume over it and without, of one node each."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.load import Transport, consume, fill, produce
from bench.peers import free_ports
from bench.plan import PARTITIONS, PAYLOAD_NAMES
from bench.report import MESSAGES, PER_MILLION, Outcome, Runs, Section, times_at_least
from bench.session import KAFKA, NONE, Case, Session
from bench.systems import KafkaNode, Server, System, Unavailable, goqueue
from bench.topics import Topic, create_topic, fresh_topic

SIZE = 1000
PLAIN, TLS = "in plain text", "over TLS"


class Certificate(NamedTuple):
    """A certificate that signs itself, its key, and both in one file, as Kafka wants it."""

    certificate: Path
    key: Path
    both: Path


class Subject(NamedTuple):
    """A running node, and how its listener with TLS is reached."""

    system: System
    over: Transport
    filled: Topic


def measure(session: Session) -> None:
    """GoQueue with fsync none, beside Apache Kafka where it was asked for."""
    section = session.section("TLS 1.3, 6 partitions, 1 KB by the C client of librdkafka")
    section.notes += [
        "The certificate has a P-256 key; client and broker share the cores, so the client's part "
        "of the encryption costs too.",
        "Consume is from the page cache.",
    ]
    certificate = make_certificate(session.work / "tls")
    subjects: dict[str, Subject] = {}
    cases: dict[str, dict[str, Case]] = {"produce": {}, "consume": {}}
    for name in session.with_peers(NONE):
        for way in (PLAIN, TLS):
            for what, run in (("produce", _produce), ("consume", _consume)):
                case = partial(run, session, subjects, certificate, name, way)
                cases[what][f"{name}, {way}"] = case
    for what, of_what in cases.items():
        runs = session.in_turns(f"{what} with and without TLS", of_what)
        _add_lines(section, what, runs)


def _add_lines(section: Section, what: str, runs: dict[str, Runs]) -> None:
    row = f"{what} {PAYLOAD_NAMES[SIZE]}"
    mine, plain = runs[f"{NONE}, {TLS}"], runs[f"{NONE}, {PLAIN}"]
    kafka = runs.get(f"{KAFKA}, {TLS}")
    label = f"{row}, {NONE}, {TLS}"
    section.add(label, mine, "messages_per_s", MESSAGES, reference=plain)
    if kafka is not None:
        target = times_at_least(1.0)
        section.add(label, mine, "messages_per_s", MESSAGES, reference=kafka, target=target)
        plain_kafka = runs[f"{KAFKA}, {PLAIN}"]
        section.add(
            f"{row}, {KAFKA}, {TLS}", kafka, "messages_per_s", MESSAGES, reference=plain_kafka
        )
    cpu = f"{label}: broker CPU per million messages"
    section.add(cpu, mine, "broker_cpu_us", PER_MILLION, reference=plain)
    if kafka is not None:
        section.add(cpu, mine, "broker_cpu_us", PER_MILLION, reference=kafka)


def _produce(
    session: Session, subjects: dict[str, Subject], certificate: Certificate, name: str, way: str
) -> Outcome:
    subject = _subject(session, subjects, certificate, name)
    over = subject.over if way == TLS else None
    count = session.plan.messages("C", SIZE)
    with fresh_topic(subject.system, PARTITIONS) as topic:
        return produce(session.tools, "C", subject.system, topic, count=count, size=SIZE, over=over)


def _consume(
    session: Session, subjects: dict[str, Subject], certificate: Certificate, name: str, way: str
) -> Outcome:
    subject = _subject(session, subjects, certificate, name)
    over = subject.over if way == TLS else None
    # The warm-up of the producer has sent one message to each partition.
    count = session.plan.messages("C", SIZE) + PARTITIONS
    return consume(
        session.tools, "C", subject.system, subject.filled, count=count, size=SIZE, over=over
    )


def _subject(
    session: Session, subjects: dict[str, Subject], certificate: Certificate, name: str
) -> Subject:
    """The running node of this name; started, and one topic filled, when it is first needed."""
    if name not in subjects:
        start = _start_kafka if name == KAFKA else _start_goqueue
        system, bootstrap = start(session, certificate)
        settings = {
            "security.protocol": "ssl",
            "ssl.ca.location": str(certificate.certificate),
        }
        over = Transport(bootstrap, settings)
        count = session.plan.messages("C", SIZE)
        with fresh_topic(system, PARTITIONS) as topic:  # A JVM compiles while it runs.
            produce(session.tools, "C", system, topic, count=count, size=SIZE, over=over)
            count_there = count + PARTITIONS
            consume(session.tools, "C", system, topic, count=count_there, size=SIZE, over=over)
        filled = create_topic(system, PARTITIONS)
        fill(session.tools, system, filled, count=count, size=SIZE, held=0)
        subjects[name] = Subject(system, over, filled)
    session.meter.use(subjects[name].system)
    return subjects[name]


def _start_goqueue(session: Session, certificate: Certificate) -> tuple[Server, str]:
    settings = {
        "storage.fsync": "none",
        "security.tls_certificate": certificate.certificate,
        "security.tls_key": certificate.key,
    }
    listeners = "127.0.0.1:0,ssl://127.0.0.1:0"
    server = goqueue("GoQueue (TLS)", session.work / "tls-goqueue", settings, kafka=listeners)
    session.stack.callback(server.close)
    server.start()
    return server, server.kafka_over_tls


def _start_kafka(session: Session, certificate: Certificate) -> tuple[KafkaNode, str]:
    over_tls = f"127.0.0.1:{free_ports(1)[0]}"
    properties = {
        "listeners": f"PLAINTEXT://{{kafka}},SSL://{over_tls},CONTROLLER://{{controller}}",
        "advertised.listeners": f"PLAINTEXT://{{kafka}},SSL://{over_tls}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.both),
    }
    kafka = KafkaNode(session.work / "tls-kafka", properties)
    session.stack.callback(kafka.close)
    return kafka, over_tls


def make_certificate(folder: Path) -> Certificate:
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / "server.pem", folder / "server.key", folder / "both.pem")
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "30", "-subj", "/CN=127.0.0.1"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(made.key), "-out", str(made.certificate)),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"openssl cannot make a certificate: {error}") from error
    made.both.write_bytes(made.key.read_bytes() + made.certificate.read_bytes())
    return made
