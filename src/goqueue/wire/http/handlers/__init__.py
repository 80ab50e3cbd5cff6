"""One function for each operation: structs in, calls on the broker, structs out."""
