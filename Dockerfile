# The sidecar (target `sidecar`, the default) and its Spark audit (target `audit`).
#
#   docker build --tag timewheel .
#   docker build --tag timewheel-audit --target audit .
ARG PYTHON_VERSION=3.13

# --- The dependencies first: they change less often than the code, and their layer is kept.
FROM python:${PYTHON_VERSION}-slim AS dependencies
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv --without-pip /opt/timewheel
COPY pyproject.toml constraints.txt ./
# OpenTelemetry is 10 MB of it, loaded by the setting `otel` alone.
RUN python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *p["optional-dependencies"]["otel"], sep="\n")' > requirements.txt \
 && pip --python /opt/timewheel/bin/python install --quiet --constraint constraints.txt --requirement requirements.txt

# What tells what is in the image; it stays in this stage.
RUN python -m venv /opt/bill && /opt/bill/bin/pip install --quiet --constraint constraints.txt cyclonedx-bom

# --- Timewheel itself, from the source.
FROM dependencies AS package
COPY README.md LICENSE ./
COPY connectors connectors
COPY sidecar sidecar
COPY spark spark
RUN pip --python /opt/timewheel/bin/python install --quiet --no-deps --constraint constraints.txt . \
 && find /opt/timewheel -depth -type d -name tests -exec rm -rf {} + \
 && python -m compileall -q -j 0 /opt/timewheel/lib \
 && /opt/bill/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
      --output-file /opt/timewheel/sbom.cdx.json /opt/timewheel/bin/python

# --- What the images have in common: a user that owns nothing, and a directory that it may write to.
FROM python:${PYTHON_VERSION}-slim AS base
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Timewheel" \
      org.opencontainers.image.description="A scheduling sidecar for Kafka: delay levels, delivery at any time, retries and dead letters, exactly once" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 timewheel \
 && useradd --uid 10001 --gid timewheel --no-create-home --home-dir /tmp --shell /usr/sbin/nologin timewheel \
 && install -d -o timewheel -g timewheel -m 0770 /var/lib/timewheel
# What the image holds, as CycloneDX.
RUN install -d /usr/share/timewheel && ln -s /opt/timewheel/sbom.cdx.json /usr/share/timewheel/sbom.cdx.json
ENV PATH=/opt/timewheel/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
STOPSIGNAL SIGTERM
# Exec form: the process is the container's first, and hears SIGTERM itself.
ENTRYPOINT ["timewheel"]

# --- The sidecar. The root file system may be read-only; /var/lib/timewheel is what it writes to.
FROM base AS sidecar
COPY --from=package /opt/timewheel /opt/timewheel
USER 10001:10001
WORKDIR /var/lib/timewheel
VOLUME /var/lib/timewheel
# Reachable from outside the container, so `run` needs TIMEWHEEL_HTTP_TOKEN.
ENV TIMEWHEEL_DATA_DIR=/var/lib/timewheel TIMEWHEEL_HTTP_ADDRESS=0.0.0.0:8080
EXPOSE 8080
# `timewheel status` tells more, and costs ten times as much.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=6 CMD ["python", "-ISc", \
    "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['TIMEWHEEL_HTTP_ADDRESS'].rpartition(':')[2]), timeout=2); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["run"]

# --- The audit: the same with Spark, its jars and the Java runtime that comes with the extra, all fetched here and not later.
FROM dependencies AS audit-dependencies
# The extra `spark` names `report` as timewheel's, and the package is not here yet.
RUN python -c 'import tomllib; o = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*o["report"], *(r for r in o["spark"] if r != "timewheel[report]"), sep="\n")' > spark.txt \
 && pip --python /opt/timewheel/bin/python install --quiet --constraint constraints.txt --requirement spark.txt

# The jars come over the authorities that the system trusts, as pip's packages do: a base image may have added a proxy's.
FROM audit-dependencies AS audit-package
ENV TIMEWHEEL_CACHE_DIR=/opt/timewheel/cache REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
COPY --from=package /opt/timewheel /opt/timewheel
RUN find /opt/timewheel -depth -type d -name tests -exec rm -rf {} + \
 && /opt/timewheel/bin/python -m spark.packages \
 && /opt/bill/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
      --output-file /opt/timewheel/sbom.cdx.json /opt/timewheel/bin/python

FROM base AS audit
COPY --from=audit-package /opt/timewheel /opt/timewheel
ENV TIMEWHEEL_CACHE_DIR=/opt/timewheel/cache
USER 10001:10001
WORKDIR /tmp
CMD ["audit", "--help"]

# --- What is built where no target is named.
FROM sidecar
