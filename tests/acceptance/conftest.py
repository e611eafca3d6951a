"""What is collected only on request: the compose stack wants a Docker engine, and minutes (`make test-compose`)."""

import os

collect_ignore = [] if os.environ.get("TIMEWHEEL_TEST_COMPOSE") else ["test_compose.py"]
