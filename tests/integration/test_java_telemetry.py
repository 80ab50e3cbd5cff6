"""The Java client reports what it measures too, with other names for what it has more of."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.peers import PeerUnavailable
from bench.peers.maven import fetch_jars

from .conftest import StartBroker
from .otlp_receiver import Receiver
from .waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-security` runs the Java client, which Maven fetches",
    ),
    pytest.mark.single_node("counts what one node did"),
]
VERSION = "4.4.0"
POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>test</groupId><artifactId>test</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka-clients</artifactId><version>{VERSION}</version></dependency></dependencies>
</project>"""
SOFTWARE = {"software": "apache-kafka-java"}
# Sends and receives until its input ends.
PROGRAM = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Report {
    public static void main(String[] given) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", "shop");
        settings.put("auto.offset.reset", "earliest");
        var text = new StringSerializer();
        var read = new StringDeserializer();
        try (var producer = new KafkaProducer<>(settings, text, text);
                var consumer = new KafkaConsumer<>(settings, read, read)) {
            consumer.subscribe(List.of("orders"));
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>("orders", "hello")).get();
                consumer.poll(Duration.ofMillis(100));
            }
        }
    }
}
"""


def test_a_java_producer_and_consumer_report_what_they_see(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    try:
        jars = fetch_jars("kafka-clients", VERSION, POM)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    (tmp_path / "Report.java").write_text(PROGRAM)
    with Receiver() as receiver:
        broker = start_broker(
            {
                "metrics.client_interval_ms": "1s",
                "metrics.otlp_interval_ms": "1s",
                "metrics.otlp_endpoint": receiver.address,
                "groups.initial_rebalance_delay_ms": 0,
            }
        )
        command = ["java", "-Xmx256M", "-cp", f"{jars}/*", "Report.java", broker.bootstrap]
        with subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        ) as java:
            assert java.stdin is not None

            def reports() -> bool:
                assert java.poll() is None, java.stderr and java.stderr.read()[-4_000:]
                if not receiver.received:
                    return False
                last = receiver.received[-1]
                return all(
                    (last.number(name, **SOFTWARE) or 0) > 0
                    for name in (
                        "goqueue_client_producer_request_latency_max_seconds",
                        "goqueue_client_consumer_request_latency_max_seconds",
                        "goqueue_client_consumer_assigned_partitions",
                        "goqueue_client_connections_opened_total",
                    )
                )

            eventually(reports, within=90)
            last = receiver.received[-1]
            assert last.number("goqueue_client_instances", **SOFTWARE) == 2
            idle = last.number("goqueue_client_consumer_poll_idle_min_ratio", **SOFTWARE)
            assert idle is not None
            assert 0 <= idle <= 1
            java.stdin.write(b"end")
            java.stdin.close()
            assert java.wait(60) == 0
        eventually(
            lambda: receiver.received[-1].number("goqueue_client_instances", **SOFTWARE) is None
        )
        outcomes = receiver.received[-1].metrics["goqueue_client_reports_total"].sum.data_points
        assert {point.attributes[0].value.string_value for point in outcomes} == {"accepted"}
