"""The fixed stopwatch: runs in the child process, never taken from the commit."""
