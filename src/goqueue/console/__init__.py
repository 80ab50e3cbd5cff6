"""The web console: files for browsers, in `static/`, which the HTTP front end serves.

The console is a client of the HTTP API like any other, and runs in the browser alone. There is no
code of it in the broker; this package only holds what is built from `console/` by `make console`.
"""
