"""What all trainers share: settings, files, progress, checkpoints."""
