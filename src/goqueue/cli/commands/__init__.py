"""The commands: `goqueue NAME` is the module or package NAME, which has a Typer `app`.

To add a command, add its module here and its name to `COMMANDS` in `goqueue.cli.main`, in the order
of the help. Import nothing here: each command is loaded when it is called. A command talks to the
broker through the public client and prints through `goqueue.cli.output`; what two commands share
belongs beside this package, not in one of them.
"""
