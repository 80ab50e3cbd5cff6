"""Lists with figures, page by page, and the recent past: for people who look at a cluster."""
