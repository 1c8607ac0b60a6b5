# An HTTP/2 proxy, as an ingress would be: Debian's nginx, without a right to anything.
FROM debian:12.8-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends nginx-light \
    && rm -rf /var/lib/apt/lists/* /etc/nginx/sites-enabled
ENV HOME=/tmp
USER 65532:65532
EXPOSE 8443
CMD ["nginx", "-e", "stderr", "-c", "/run/config/nginx.conf"]
