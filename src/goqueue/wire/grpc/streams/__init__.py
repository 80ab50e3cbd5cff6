"""The handlers of streams: what they have sent, read and promised, within bounds."""
