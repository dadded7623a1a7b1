#!/usr/bin/env bash
# Unpack promtool, nginx, kustomize and docker-compose into a directory: deploy/tools.sh build/tools
#
# The packages come from the configured Debian mirror, but from newer releases: nginx must support `resolve` and
# `keepalive_min_timeout` (1.27.4), and promtool should be as new as the Prometheus of docker-compose.yml.
# apt verifies their signatures. They are unpacked, not installed: this needs no root and starts no daemon.
set -euo pipefail

releases="trixie forky" # apt takes the newest version
packages="promtool nginx kustomize docker-compose"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

. /etc/os-release 2>/dev/null || true
if [ "${ID:-}" != debian ]; then
  echo "deploy/tools.sh: needs Debian; elsewhere, install $packages yourself" >&2
  exit 1
fi

rm -rf "$1" && mkdir -p "$1"/{bin,root,apt/{sources,state/lists/partial,cache/archives/partial}}
tools=$(cd "$1" && pwd)

mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*\)/dists/$VERSION_CODENAME/InRelease'.*|\1|p")
mirror=${mirror%%$'\n'*}
printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "$mirror" "$releases" "$keyring" \
  > "$tools/apt/sources/debian.sources"
# An empty package database makes apt download the C library and all other dependencies.
touch "$tools/apt/state/status"
apt=(apt-get -qq -o Dir::State="$tools/apt/state" -o Dir::State::status="$tools/apt/state/status"
  -o Dir::Cache="$tools/apt/cache" -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$tools/apt/sources"
  -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" install --yes --no-install-recommends --download-only $packages
for package in "$tools"/apt/cache/archives/*.deb; do
  dpkg --extract "$package" "$tools/root"
done
rm -r "$tools/apt"

# Run each tool with the C library it was built for.
root=$tools/root
loader=$(echo "$root"/usr/lib/*-linux-gnu*/ld-linux-*.so.*)
for program in "$root"/usr/bin/{promtool,kustomize} "$root"/usr/sbin/nginx "$root"/usr/libexec/docker/cli-plugins/docker-compose; do
  printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$(dirname "$loader")" "$program" \
    > "$tools/bin/$(basename "$program")"
  chmod +x "$tools/bin/$(basename "$program")"
done
