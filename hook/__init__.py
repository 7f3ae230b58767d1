"""The OCI createRuntime hook: writes a container's planned kernel settings before its first instruction."""
