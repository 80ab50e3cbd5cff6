"""One function per operation: takes structs, calls the gate, returns structs."""
