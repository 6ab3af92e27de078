# One image for every component: `scheduler run`, `binder run`, `nodeagent run`.

FROM python:3.13-slim AS build
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /src
ENV UV_PROJECT_ENVIRONMENT=/opt/bindery \
    UV_COMPILE_BYTECODE=1 \
    PYC_INVALIDATION_MODE=unchecked-hash \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
# The dependencies are a layer of their own: they change less often than the code.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-install-project
COPY README.md LICENSE ./
COPY bindery ./bindery
RUN uv sync --frozen --no-editable

FROM python:3.13-slim
# The base image has no compiled modules of the standard library, and no process may write them later.
# With hashes they count whatever the timestamps of the files become.
RUN python -m compileall -q --invalidation-mode unchecked-hash /usr/local/lib/python3.13
COPY --from=build /opt/bindery /opt/bindery
ENV PATH=/opt/bindery/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["bindery"]
