#!/bin/bash
# Collects what tests/gpu/run.sh needs beside a compiler, CMake and CUDA, for a GPU machine that reaches no package
# registry: the files of the installed Debian packages, and the shared libraries that these load; about 55 MB.
#
#   tests/gpu/bundle.sh [FILE]     default: gpu-bundle.tar.gz in the repository, which git ignores
#
# Run it on Debian 12 or newer, carry FILE along, and name it there: tests/gpu/run.sh --bundle FILE.
set -euo pipefail
case "${1:-}" in
  -h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
. "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
rondo_install "${rondo_packages[@]}"
archive=$(realpath "${1:-$rondo_root/gpu-bundle.tar.gz}")
dir=$(mktemp -d)
files=$(mktemp)
trap 'rm -rf "$dir" "$files"' EXIT

packages=(openmpi-common pkgconf pkgconf-bin)
for package in "${rondo_packages[@]}"; do
  case $package in
    g++ | cmake | ninja-build | ccache | iproute2) ;;  # the machine's own
    *) packages+=("$package") ;;
  esac
done
packages+=(opencl-c-headers opencl-clhpp-headers)

# From dpkg's lists: files and links, without documentation and static libraries that have a shared form.
for package in "${packages[@]}"; do
  { dpkg -L "$package" 2>/dev/null || true; } | while read -r path; do
    case $path in
      /usr/share/doc/* | /usr/share/man/* | /usr/share/lintian/* | /usr/share/bug/* | /usr/share/locale/*) continue ;;
      */fortran/* | *.mod) continue ;;
      */libdnnl.a | */libmpi*.a | */openmpi/lib/*.a) continue ;;
      */libhdf5*.a | */libhdf5*_cpp* | */libhdf5*_hl* | */libhdf5*fortran*) continue ;;  # the C library is all we use
    esac
    if [ -f "$path" ] || [ -L "$path" ]; then echo "$path"; fi
  done
done | sort -u >"$files"

# Development packages hold links to libraries of other packages; those load more, and so do Open MPI's plug-ins.
find /usr/lib/*/openmpi /usr/lib/*/pmix* /usr/share/openmpi /etc/openmpi /usr/share/pmix* \
  \( -type f -o -type l \) ! -name '*.a' 2>/dev/null >>"$files" || true
binaries=$(grep -E '\.so(\.|$)|/bin/' "$files")
{
  xargs -r readlink -f <<<"$binaries"
  xargs -r ldd <<<"$binaries" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' || true
} | sort -u | while read -r library; do
  case $library in
    */libc.so.* | */libm.so.* | */libdl.so.* | */librt.so.* | */libpthread.so.* | */libresolv.so.* | */libutil.so.* | \
      */libgcc_s.so.* | */libstdc++.so.* | */libgomp.so.*) continue ;;  # the compiler's
  esac
  real=$(readlink -f "$library")
  echo "$real"
  soname=$({ objdump -p "$real" 2>/dev/null || true; } | sed -n 's/^ *SONAME *//p')
  [ -z "$soname" ] || [ ! -e "$(dirname "$real")/$soname" ] || echo "$(dirname "$real")/$soname"
done >>"$files"
sort -u "$files" | tar --create --files-from=- --absolute-names --ignore-failed-read 2>/dev/null |
  tar --extract --directory "$dir" --transform 's,^/,,S'
# Links inside the bundle must stay inside.
find "$dir" -lname '/*' | while read -r link; do
  target=$(readlink "$link")
  case $target in /lib/*) target=/usr$target ;; esac
  [ ! -e "$dir$target" ] || ln --symbolic --force --relative "$dir$target" "$link"
done
tar --create --gzip --file "$archive" --directory "$dir" .
echo "$(find "$dir" -type f | wc -l) files, $(du -h "$archive" | cut -f 1): $archive"
