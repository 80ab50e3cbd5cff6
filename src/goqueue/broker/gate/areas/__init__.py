"""The areas of the gate: what a broker can be asked, one class for each kind of object.

Each public method of an area is one operation. `operation.py` says how they are declared.
"""
