"""The operator's client: requests to the coordinator, and a live mirror of the fleet."""
