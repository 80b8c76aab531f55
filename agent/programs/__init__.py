"""Programs that the fleet brings to this host: what the owner allows, the cache, the sandbox."""
