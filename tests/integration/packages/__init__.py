"""What is published, built and installed as users do it."""
