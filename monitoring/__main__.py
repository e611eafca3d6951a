"""``python -m monitoring``: write what is generated, the dashboard and the page of the metrics."""

from pathlib import Path

from monitoring.dashboard import grafana_dashboard
from monitoring.metrics_page import metrics_page

ROOT = Path(__file__).parent.parent

GENERATED = {
    ROOT / "monitoring" / "grafana-dashboard.json": grafana_dashboard,
    ROOT / "docs" / "metrics.md": metrics_page,
}


def main() -> None:
    for path, make in GENERATED.items():
        path.write_text(make())
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
