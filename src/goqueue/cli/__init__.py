"""The `goqueue` command.

Each command is a module of its own, loaded when it is called: `serve` starts as fast as a broker
can, and a table is drawn only for those who look at one. Everything but `serve` manages a broker
through the public client, as anybody could.
"""
