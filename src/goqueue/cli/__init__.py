"""The `goqueue` command.

Each command is a module that is imported when it is called, so that `serve` does not load the
libraries that draw tables. All commands except `serve` use only the public client.
"""
