"""The handlers of actions: each validates its input as SQS does, and calls the gate."""
