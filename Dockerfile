# One image per device, each with the shipped models, and one for training:
#   docker build --target cpu -t lattemix:cpu .
#   docker build --target gpu -t lattemix:gpu .
#   docker build --target train -t lattemix:train .
# CUDA and cuDNN come from wheels, so all images have the same small base. The host of the gpu image needs an
# NVIDIA driver of version 580 or newer (CUDA 13), a GPU of compute capability 7.5 or higher, and the NVIDIA
# Container Toolkit; `lattemix gpu-check` checks them.

FROM python:3.11-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# The wheel, and an environment that assembles the models without torch. Only /dist and /models are
# copied into the images.
FROM base AS build
COPY requirements/build.txt requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --no-deps -r requirements/build.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY app app
COPY lattemix lattemix
COPY model_store model_store
COPY training training
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /dist . \
    && /opt/build/bin/pip install --no-index --no-deps /dist/*.whl

# Only the best precision for the device; --build-arg PRECISIONS=fp32,int8 adds others.
FROM build AS model-cpu
ARG PRECISIONS=int8
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/build/bin/lattemix build --store /models --precision "$PRECISIONS"

FROM build AS model-gpu
ARG PRECISIONS=fp16,fp32
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/build/bin/lattemix build --store /models --precision "$PRECISIONS"

FROM base AS packages-cpu
COPY requirements/cpu.txt requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/lattemix \
    && pip --python /opt/lattemix/bin/python install --require-hashes --no-deps -r requirements/cpu.txt

FROM base AS packages-gpu
COPY requirements/gpu.txt requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/lattemix \
    && pip --python /opt/lattemix/bin/python install --require-hashes --no-deps -r requirements/gpu.txt

# No hashes: builds of torch for different CUDA versions share a version number. pip stays: it
# fetches backbones.
FROM base AS packages-train
COPY constraints.txt ./
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=bind,from=build,source=/dist,target=/dist \
    python -m venv /opt/lattemix \
    && /opt/lattemix/bin/pip install -c constraints.txt "$(echo /dist/*.whl)[train]" \
    && /opt/lattemix/bin/pip uninstall --yes lattemix

# tini forwards signals and reaps the health check's zombies. The image's user owns /store, so a new
# volume mounted there belongs to it too.
FROM python:3.11-slim-bookworm AS runtime
# tini is not pinned: Debian's archive has only the newest version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/* \
    && groupadd --gid 10001 lattemix \
    && useradd --uid 10001 --gid 10001 --no-create-home --no-log-init lattemix \
    && install --directory --owner 10001 --group 10001 /store
# Set by the release workflow.
ARG VERSION=dev
LABEL org.opencontainers.image.title="Latte-Mix" \
      org.opencontainers.image.description="Semantic similarity with latent categorical mixtures" \
      org.opencontainers.image.source="https://github.com/latte-mix/latte-mix" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
ENV PATH=/opt/lattemix/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM runtime AS train
ENV LATTEMIX_STORE=/store XDG_CACHE_HOME=/training/.cache
COPY --from=packages-train /opt/lattemix /opt/lattemix
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    pip --python /opt/lattemix/bin/python install --no-index --no-deps --no-cache-dir /dist/*.whl \
    && install --directory --owner 10001 --group 10001 /training
USER 10001
WORKDIR /training
ENTRYPOINT ["tini", "--", "lattemix-train"]
CMD ["--help"]

FROM runtime AS serve
ENV LATTEMIX_HOST=0.0.0.0 LATTEMIX_PORT=8000 LATTEMIX_STORE=/models
EXPOSE 8000
# The start period is for large models on slow volumes, and for CUDA's libraries (2 GB).
HEALTHCHECK --interval=10s --timeout=3s --start-period=300s --start-interval=1s --retries=3 CMD \
    ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"LATTEMIX_PORT\"]}/ready', timeout=2)"]
ENTRYPOINT ["tini", "--", "lattemix"]
CMD ["serve"]

FROM serve AS gpu
# The NVIDIA container runtime reads NVIDIA_*; `utility` is nvidia-smi. CUDA keeps the kernels that
# it compiles in CUDA_CACHE_PATH: mount a volume there to keep them with the root file system read-only.
ENV LATTEMIX_PROVIDER=cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_PATH=/cache
COPY --from=packages-gpu /opt/lattemix /opt/lattemix
COPY --from=model-gpu /models /models
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    pip --python /opt/lattemix/bin/python install --no-index --no-deps --no-cache-dir /dist/*.whl \
    && install --directory --owner 10001 --group 10001 /cache
USER 10001

FROM serve AS cpu
ENV LATTEMIX_PROVIDER=cpu
COPY --from=packages-cpu /opt/lattemix /opt/lattemix
COPY --from=model-cpu /models /models
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    pip --python /opt/lattemix/bin/python install --no-index --no-deps --no-cache-dir /dist/*.whl
USER 10001
