"""The pages, one file each; `register` in each makes it known to NiceGUI."""
