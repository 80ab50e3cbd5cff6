"""What each action does: checks its input as SQS would, and calls the broker."""
