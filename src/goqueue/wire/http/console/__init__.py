"""Serves the files of the web console under `/console`, to everybody.

They contain no data: the console reads all it shows from the API, with the credentials of its user.
"""
