"""The handlers of calls with one request, by service."""
