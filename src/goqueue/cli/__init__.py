"""The `goqueue` command.

`main` selects the command. `commands` has one module or package per command, imported when it is
called, so that `serve` does not load the libraries that draw tables. The modules beside it are what
commands share: the broker they act on, output, and the syntax of times and positions. All commands
except `serve` manage a broker only through the public client.
"""
