"""What a backup needs of a cluster: its routes and their handlers."""
