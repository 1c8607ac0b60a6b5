# `rgpu serve` for a GPU node, here with the emulated device.  docker-compose.yml says how it is run.
FROM python:3.11.11-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.11.11-slim-bookworm
COPY deploy/docker/constraints.txt /etc/rgpu/constraints.txt
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --constraint /etc/rgpu/constraints.txt \
      "$(echo /wheels/rgpu_cuda-*.whl)[server,emu]" \
    && install -d -m 0755 -o 65532 -g 65532 /run/rgpu /run/reports
# Everything that a server writes lies in /tmp (a tmpfs) and in the folder of its socket.
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 7700 7701 9400
HEALTHCHECK --interval=10s --timeout=5s CMD ["rgpu", "devices", "--server", "127.0.0.1:7700"]
CMD ["rgpu", "serve", "--listen", "127.0.0.1:7700"]
