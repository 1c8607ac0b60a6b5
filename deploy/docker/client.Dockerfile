# A container without a GPU: the client, netprobe, and numba-cuda as an example of a CUDA program.
FROM python:3.11.11-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.11.11-slim-bookworm
COPY deploy/docker/constraints.txt deploy/docker/client.txt /etc/rgpu/
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --constraint /etc/rgpu/constraints.txt \
      "$(echo /wheels/rgpu_cuda-*.whl)" --requirement /etc/rgpu/client.txt \
    && install -d -m 0755 -o 65532 -g 65532 /run/rgpu /run/reports
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
CMD ["rgpu", "devices"]
