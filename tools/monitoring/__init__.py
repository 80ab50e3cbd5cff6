"""Alert rules, their tests, and dashboards, generated for Prometheus and Grafana.

`make monitoring` writes `deploy/prometheus` and `deploy/grafana`. Every alert is defined once, with
a series that must fire it and one that must not (`alerts`); every dashboard is a list of panels
(`boards`). This package depends on no library of Prometheus or Grafana, and reads no metric.
"""
