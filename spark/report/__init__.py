"""What the audit found, as a value (`model`), a page, Prometheus text and JSON.

Importing it loads neither Spark nor a plotting library.
"""

from spark.report.files import REPORT_HTML, REPORT_JSON, REPORT_PROMETHEUS, ReportError, load_report, write_report
from spark.report.model import AuditReport

__all__ = [
    "REPORT_HTML",
    "REPORT_JSON",
    "REPORT_PROMETHEUS",
    "AuditReport",
    "ReportError",
    "load_report",
    "write_report",
]
