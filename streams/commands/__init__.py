"""Sub-commands with sub-commands of their own, one file each."""
