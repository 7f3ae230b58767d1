"""What a program of ours serves over HTTP: addresses, servers, TLS, readiness and probes."""
