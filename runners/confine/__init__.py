"""Locks a process in before it runs a stranger's code: namespaces, identity, Landlock, seccomp, limits.

`python -S -P -m runners.confine SPEC` is what `runners.sandbox` starts. Standard library only, so that it starts fast
and so that nothing from the suite can be imported before the doors are shut.
"""
