# One image per device, each with the default model inside:
#   docker build --target cpu -t lattemix:cpu .
#   docker build --target gpu -t lattemix:gpu .
# CUDA and cuDNN come from wheels, so both start from the same small base.

FROM python:3.11-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
COPY model_store model_store
COPY training training

# Assembles the model, without torch; nothing of it but /models reaches the images.
FROM base AS model
RUN python -m venv /opt/build && /opt/build/bin/pip install -c constraints.txt ".[cpu,export]"
RUN /opt/build/bin/lattemix build --store /models --precision fp32,fp16,int8

FROM base AS packages-cpu
RUN python -m venv /opt/lattemix && /opt/lattemix/bin/pip install -c constraints.txt ".[cpu]"

FROM base AS packages-gpu
RUN python -m venv /opt/lattemix && /opt/lattemix/bin/pip install -c constraints.txt ".[gpu]"

FROM python:3.11-slim-bookworm AS runtime
LABEL org.opencontainers.image.title="Latte-Mix" \
      org.opencontainers.image.description="Semantic similarity with latent categorical mixtures" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/lattemix/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    LATTEMIX_HOST=0.0.0.0 LATTEMIX_PORT=8000 LATTEMIX_STORE=/models
RUN useradd --system --uid 10001 --no-create-home lattemix
COPY --from=model /models /models
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD \
    ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"LATTEMIX_PORT\"]}/ready', timeout=2)"]
ENTRYPOINT ["lattemix"]
CMD ["serve"]

FROM runtime AS gpu
ENV LATTEMIX_PROVIDER=cuda
COPY --from=packages-gpu /opt/lattemix /opt/lattemix

FROM runtime AS cpu
ENV LATTEMIX_PROVIDER=cpu
COPY --from=packages-cpu /opt/lattemix /opt/lattemix
