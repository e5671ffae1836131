#!/bin/sh
# Sees to it that there is a CRIU of 4.1 or newer, which moving guests needs.
#
#   get-criu.sh [DIRECTORY]     default: /usr/lib/gleaner/criu
#
# Nothing is fetched if there is one already. Where the system's own package is
# new enough it is installed. Elsewhere (Debian 12) Debian 13's package and the
# libraries it needs are unpacked into DIRECTORY, with their own loader: the
# system's libraries and apt's sources stay as they are. apt checks Debian's
# signature and every checksum.
set -eu

tree=${1:-/usr/lib/gleaner/criu}
suite=trixie
at_least=4.1

say() { echo "get-criu: $*" >&2; }

# new_enough VERSION
new_enough() {
    [ "$(printf '%s\n%s\n' "$at_least" "$1" | sort -V | head -n 1)" = "$at_least" ]
}

version_of() {
    "$@" --version 2>/dev/null | sed -n 's/^Version: //p'
}

# The loader of a private tree, by its name on every architecture.
loader_of() {
    for loader in "$1"/lib/ld-linux*.so.*; do
        [ -f "$loader" ] && echo "$loader" && return
    done
    return 1
}

tree_works() {
    loader=$(loader_of "$1") || return 1
    version=$(version_of "$loader" --library-path "$1/lib" "$1/criu")
    [ -n "$version" ] && new_enough "$version"
}

if version=$(version_of criu) && [ -n "$version" ] && new_enough "$version"; then
    say "criu $version is installed"
    exit 0
fi
if tree_works "$tree"; then
    say "criu $version is in $tree"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    say "no criu of $at_least or newer: run this as root, or install the package criu of Debian 13"
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    say "no criu of $at_least or newer, and no apt-get: install your distribution's package criu"
    exit 1
fi

candidate=$(apt-cache policy criu 2>/dev/null | sed -n 's/^ *Candidate: //p')
if [ -n "$candidate" ] && [ "$candidate" != "(none)" ] && new_enough "$candidate"; then
    apt-get install -y -qq --no-install-recommends criu >/dev/null
    say "installed the system's package criu $candidate"
    exit 0
fi

# The mirror that this machine already uses for Debian.
mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Created-By: Packages' | head -n 1)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -z "$mirror" ] || [ ! -f "$keyring" ]; then
    say "this machine knows no Debian mirror: run apt-get update, or install criu $at_least or newer"
    exit 1
fi

work=$(mktemp -d)
new=$tree.new
trap 'rm -rf "$work" "$new"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/none"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
: >"$work/status"
# An apt of its own: knows only that suite, and takes nothing as installed.
private_apt() {
    apt-get -qq \
        -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::Etc::Preferences=- -o Dir::Etc::PreferencesParts="$work/none" \
        -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" \
        -o Dir::Cache="$work/cache" -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o APT::Sandbox::User=root "$@"
}
private_apt update
private_apt install -y --no-install-recommends --download-only criu >/dev/null

mkdir -p "$work/root"
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done
# Only what runs: the program, and shared libraries by their names.
rm -rf "$new"
mkdir -p "$new/lib"
cp "$work/root/usr/sbin/criu" "$new/criu"
find "$work/root/usr/lib" -maxdepth 2 -name '*.so*' ! -path '*/lib64/*' \
    -exec cp -P -t "$new/lib" {} +
if ! tree_works "$new"; then
    say "what was unpacked does not run here"
    exit 1
fi
rm -rf "$tree"
mkdir -p "$(dirname "$tree")"
mv "$new" "$tree"
say "criu $version unpacked into $tree"
