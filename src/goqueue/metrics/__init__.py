"""What a node measures, and how it is written for a monitoring system.

Offers instruments, the catalogue of all metrics, the registry that holds the instruments of a node,
and rendering. It performs no I/O, reads no clock and starts nothing: who measures passes the
numbers, who scrapes runs the generators a slice at a time.

- `catalogue`: one table of every metric. A name that is not in it cannot be exported.
- `instruments`: counters, gauges and histograms, which are plain attributes without locks, because
  only the event loop changes them.
- `registry`: the instruments of a node by metric and label values, and the collectors, which read
  the state of other rooms when they are scraped.
- `samples`: what one scrape has collected.
- `rendering`: the text formats; `text_format` has their names.
- `traces`: the headers that name the trace of a request, for exemplars.
"""

from goqueue.metrics.instruments import Counter, Exemplar, Gauge, Histogram, Instrument
from goqueue.metrics.metric import Kind, Metric
from goqueue.metrics.registry import Registry, UncountedRegistry
from goqueue.metrics.samples import Collector, Samples

__all__ = [
    "Collector",
    "Counter",
    "Exemplar",
    "Gauge",
    "Histogram",
    "Instrument",
    "Kind",
    "Metric",
    "Registry",
    "Samples",
    "UncountedRegistry",
]
