"""TLS of nodes and of clients: certificates in files, handshakes, encrypted connections.

Certificates are read again when their files change. Handshakes of accepted connections get a short
time per iteration of the event loop. Who a certificate names is decided elsewhere.
"""
