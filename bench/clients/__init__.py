"""Programs that make load. Each prints one JSON object about what it did and what failed."""
