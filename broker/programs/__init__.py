"""Programs that users bring: program.toml, the parcel, and who signed it."""
