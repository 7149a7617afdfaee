"""Parts of the scheduler, one duty or some that belong together a module."""
