"""Several processes that answer as one sidecar: a supervisor, its workers, and the relay between them and HTTP.

``supervisor.py`` starts the workers and keeps them running; ``process.py`` is one of them as the supervisor sees it,
``__main__.py`` as it sees itself. ``relay.py`` asks the workers what the sidecar is asked; ``merge.py`` makes their
answers one.
"""
