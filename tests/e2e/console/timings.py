"""Measures the console in Chromium: the first content, a list of messages, memory of a live tail.

`make bench-console` runs it. The limits are for a machine with two free cores; a busy one may fail.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import confluent_kafka
from playwright.sync_api import Browser, CDPSession, sync_playwright

from goqueue.client import LogClient
from tests.e2e.console.browser import Console, start_chromium
from tests.integration.process import Broker

FIRST_CONTENT_MS_MAX = 300
LIST_MS_MAX = 200
LIVE_PER_S = 1000
HEAP_GROWTH_MAX = 8 << 20
ROUNDS = 7
SAMPLE_SECONDS = 5.0
TOPIC = "measured"

# From the click until all rows are painted.
_UNTIL_ROWS = """async ([click, rows]) => {
  const begin = performance.now();
  document.querySelector(click).click();
  await new Promise((resolve) => {
    const seen = new MutationObserver(look);
    seen.observe(document.body, { childList: true, subtree: true });
    let hadSkeleton = false;
    function look() {
      hadSkeleton ||= document.querySelector(".skeleton") !== null;
      if (!hadSkeleton || document.querySelectorAll("main tbody tr").length < rows) return;
      seen.disconnect();
      requestAnimationFrame(() => setTimeout(resolve));
    }
  });
  return performance.now() - begin;
}"""
_FIRST_CONTENT = """() => performance.getEntriesByName("first-contentful-paint")[0].startTime"""
# Notes when the figures of the overview are in the page, since the navigation began.
_NOTE_FIGURES = """new MutationObserver((_changes, seen) => {
  if (!document.querySelector(".tile")) return;
  window.figuresAt = performance.now();
  seen.disconnect();
}).observe(document, { childList: true, subtree: true });"""


def first_content(browser: Browser, node: Broker) -> tuple[list[float], ...]:
    """Return times to the first paint of a new browser, of one that returns, and to the figures."""
    cold, warm, figures = [], [], []
    for _ in range(ROUNDS):
        console = Console(browser, node)
        console.page.add_init_script(_NOTE_FIGURES)
        for times in (cold, warm):
            console.visit("overview", "Overview")
            console.page.wait_for_function(
                "performance.getEntriesByName('first-contentful-paint').length > 0"
            )
            times.append(float(console.page.evaluate(_FIRST_CONTENT)))
            console.page.wait_for_function("window.figuresAt !== undefined")
            figures.append(float(console.page.evaluate("window.figuresAt")))
        console.close()
    return cold, warm, figures


def message_list(browser: Browser, node: Broker) -> list[float]:
    """Return times from the click on Search to 100 painted rows."""
    console = Console(browser, node)
    console.visit(f"topics/{TOPIC}", TOPIC)
    console.rows(f"Messages of {TOPIC}").nth(99).wait_for()
    click = ".filter-buttons button[type=submit]"
    times = [float(console.page.evaluate(_UNTIL_ROWS, [click, 100])) for _ in range(ROUNDS)]
    console.close()
    return times


def live_tail(browser: Browser, node: Broker, seconds: float) -> list[int]:
    """Return the bytes of the heap after garbage collections, while messages stream in."""
    console = Console(browser, node)
    session = console.context.new_cdp_session(console.page)
    console.visit(f"topics/{TOPIC}?live=1", TOPIC)
    console.page.get_by_text("Waiting for new messages").wait_for()
    stop = threading.Event()
    producing = threading.Thread(target=_produce, args=(node, stop))
    producing.start()
    heap = []
    try:
        console.page.get_by_text("500 messages shown").wait_for()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            console.page.wait_for_timeout(SAMPLE_SECONDS * 1000)
            heap.append(_heap_bytes(session))
            print(f"  live tail: {heap[-1] / 1e6:.1f} MB", file=sys.stderr, flush=True)
    finally:
        stop.set()
        producing.join()
    console.close()
    console.check_faults()
    return heap


def _heap_bytes(session: CDPSession) -> int:
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def _produce(node: Broker, stop: threading.Event) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5})
    value = json.dumps({"order": 1, "items": ["x" * 20] * 10}).encode()
    begin, sent = time.monotonic(), 0
    while not stop.wait(0.02):
        due = int((time.monotonic() - begin) * LIVE_PER_S)
        for _ in range(due - sent):
            producer.produce(TOPIC, value)
        sent = due
        producer.poll(0)
    producer.flush(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to follow a live tail")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        node = Broker(Path(folder), {})
        node.start()
        browser = start_chromium(playwright)
        try:
            with LogClient(node.bootstrap) as client:
                client.topics.create(TOPIC, partition_count=3)
                with client.producer() as producer:
                    for number in range(10_000):
                        producer.send(TOPIC, b'{"order": %d, "status": "paid"}' % number)
            cold, warm, shown = first_content(browser, node)
            listed = message_list(browser, node)
            heap = live_tail(browser, node, seconds)
        finally:
            browser.close()
            node.stop()
    quarter = max(1, len(heap) // 4)
    growth = statistics.median(heap[-quarter:]) - statistics.median(heap[:quarter])
    figures = [
        ("first content, new browser", statistics.median(cold), FIRST_CONTENT_MS_MAX, "ms"),
        ("first content, files cached", statistics.median(warm), FIRST_CONTENT_MS_MAX, "ms"),
        ("overview with its figures", statistics.median(shown), FIRST_CONTENT_MS_MAX, "ms"),
        ("list of 100 messages", statistics.median(listed), LIST_MS_MAX, "ms"),
        (f"heap growth in {seconds:.0f} s of live tail", growth / 1e6, HEAP_GROWTH_MAX / 1e6, "MB"),
    ]
    for name, value, most, unit in figures:
        print(f"{name}: {value:.1f} {unit} (limit {most:.1f})")
    print(f"heap of the live tail: {min(heap) / 1e6:.1f} to {max(heap) / 1e6:.1f} MB")
    sys.exit(any(value > most for _, value, most, _ in figures))


if __name__ == "__main__":
    main()
