"""What every process needs: settings, logs, metrics, one loop runner, health over HTTP."""
