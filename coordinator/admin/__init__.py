"""Care of the state folder: doctor, fsck, backup."""
