"""The edge to an environment: objects are parsed here, once, into qos.cluster.objects."""
