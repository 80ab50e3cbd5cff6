"""The web console in Chromium, against real nodes."""
