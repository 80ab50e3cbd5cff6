"""`python -m goqueue` is the `goqueue` command."""

from goqueue.cli.main import main

main()
