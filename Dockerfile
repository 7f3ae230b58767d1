# One image, several commands: j10ce-extender, j10ce-manager and j10ce-agent (what manifests/ runs), and j10ce.
#   docker build -t j10ce-qos:0.1.0 .

# The Python that the tests run on. Another image with `python` and `pip` of that version does, too.
ARG PYTHON=python:3.11-slim
FROM ${PYTHON} AS build
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY adapters adapters
COPY agent agent
COPY cli cli
COPY extender extender
COPY hook hook
COPY kernel kernel
COPY lab lab
COPY ledger ledger
COPY manager manager
COPY manifests manifests
COPY qos qos
COPY quota quota
COPY rescheduling rescheduling
COPY simulation simulation
# A wheel first, so that the image holds what is released and nothing else; its dependencies at the tested versions.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .
RUN python -m venv --without-pip /opt/j10ce
RUN pip --python /opt/j10ce/bin/python install --no-cache-dir --constraint constraints.txt /dist/j10ce_qos-0.1.0-py3-none-any.whl

FROM ${PYTHON}
COPY --from=build /opt/j10ce /opt/j10ce
ENV PATH=/opt/j10ce/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Nobody in particular; writes nothing, so the root file system may be read-only. The agent alone is root, where
# manifests/agent says so.
USER 65532:65532
EXPOSE 10260 10261 10262 10265
CMD ["j10ce-extender", "--help"]
