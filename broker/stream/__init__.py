"""The chunk stream: sender and receiver of one artifact, and its congestion control. Pure."""
