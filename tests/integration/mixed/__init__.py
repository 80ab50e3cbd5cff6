"""One queue drained by consumers of every kind, while consumers and nodes are killed."""
